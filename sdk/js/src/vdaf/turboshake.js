// @ts-check
/** TurboSHAKE128 (RFC 9861), the hash of Prio3's seeds and shares. */

const RATE_BYTES = 168;
const DOMAIN = 1;
/** Bits by which rho rotates lane x + 5 y (FIPS 202, table 2). */
const ROTATIONS = [0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14];
/** High and low halves of the constants of the last twelve rounds of Keccak-f[1600]. */
const ROUND_CONSTANTS = [
  [0x00000000, 0x8000808b], [0x80000000, 0x0000008b], [0x80000000, 0x00008089], [0x80000000, 0x00008003],
  [0x80000000, 0x00008002], [0x80000000, 0x00000080], [0x00000000, 0x0000800a], [0x80000000, 0x8000000a],
  [0x80000000, 0x80008081], [0x80000000, 0x00008080], [0x00000000, 0x80000001], [0x80000000, 0x80008008],
];
const LANES = 25;
/** Where pi moves lane x + 5 y. */
const MOVED = Array.from({ length: LANES }, (_, lane) => {
  const [x, y] = [lane % 5, Math.floor(lane / 5)];
  return y + 5 * ((2 * x + 3 * y) % 5);
});

/**
 * Hash a message to a number of bytes, with the domain byte that Prio3 uses.
 * @param {Uint8Array<ArrayBuffer>} message
 * @param {number} nBytes
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function turboshake128(message, nBytes) {
  const padded = new Uint8Array(Math.ceil((message.length + 1) / RATE_BYTES) * RATE_BYTES);
  padded.set(message);
  padded[message.length] = DOMAIN;
  padded[padded.length - 1] ^= 0x80;
  const input = new DataView(padded.buffer);
  const state = { low: new Int32Array(LANES), high: new Int32Array(LANES) };
  for (let start = 0; start < padded.length; start += RATE_BYTES) {
    for (let lane = 0; lane < RATE_BYTES / 8; lane++) {
      state.low[lane] ^= input.getInt32(start + 8 * lane, true);
      state.high[lane] ^= input.getInt32(start + 8 * lane + 4, true);
    }
    permute(state);
  }
  const output = new Uint8Array(Math.ceil(nBytes / RATE_BYTES) * RATE_BYTES);
  const view = new DataView(output.buffer);
  for (let start = 0; start < nBytes; start += RATE_BYTES) {
    if (start > 0) permute(state);
    for (let lane = 0; lane < RATE_BYTES / 8; lane++) {
      view.setInt32(start + 8 * lane, state.low[lane], true);
      view.setInt32(start + 8 * lane + 4, state.high[lane], true);
    }
  }
  return output.subarray(0, nBytes);
}

/**
 * Apply twelve rounds: theta, rho, pi, chi and iota.
 * @param {{ low: Int32Array, high: Int32Array }} state
 */
function permute({ low, high }) {
  const columns = { low: new Int32Array(5), high: new Int32Array(5) };
  const moved = { low: new Int32Array(LANES), high: new Int32Array(LANES) };
  for (const [highConstant, lowConstant] of ROUND_CONSTANTS) {
    for (const [half, sums] of [[low, columns.low], [high, columns.high]]) {
      for (let x = 0; x < 5; x++) sums[x] = half[x] ^ half[x + 5] ^ half[x + 10] ^ half[x + 15] ^ half[x + 20];
    }
    for (let lane = 0; lane < LANES; lane++) {
      const [before, after] = [(lane + 4) % 5, (lane + 1) % 5];
      const a = low[lane] ^ columns.low[before] ^ ((columns.low[after] << 1) | (columns.high[after] >>> 31));
      const b = high[lane] ^ columns.high[before] ^ ((columns.high[after] << 1) | (columns.low[after] >>> 31));
      rotate(moved, MOVED[lane], a, b, ROTATIONS[lane]);
    }
    for (const [half, from] of [[low, moved.low], [high, moved.high]]) {
      for (let row = 0; row < LANES; row += 5) {
        for (let x = 0; x < 5; x++) half[row + x] = from[row + x] ^ (~from[row + ((x + 1) % 5)] & from[row + ((x + 2) % 5)]);
      }
    }
    low[0] ^= lowConstant;
    high[0] ^= highConstant;
  }
}

/**
 * Write a lane, rotated to the left.
 * @param {{ low: Int32Array, high: Int32Array }} lanes
 * @param {number} index
 * @param {number} low
 * @param {number} high
 * @param {number} nBits
 */
function rotate(lanes, index, low, high, nBits) {
  const [a, b, bits] = nBits < 32 ? [low, high, nBits] : [high, low, nBits - 32];
  lanes.low[index] = bits ? (a << bits) | (b >>> (32 - bits)) : a;
  lanes.high[index] = bits ? (b << bits) | (a >>> (32 - bits)) : b;
}
