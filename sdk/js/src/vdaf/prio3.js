// @ts-check
/** Prio3 on a device (draft-irtf-cfrg-vdaf-20, section 7): a vote in shares for two servers, that prove themselves. */

import { concatBytes } from "../bytes.js";
import { countBitCalls, countPoints, proofLength } from "./circuits.js";
import { MODULUS, double, encode, expand, reduce } from "./field.js";
import { turboshake128 } from "./turboshake.js";

/** @typedef {import("./circuits.js").Circuit} Circuit */

export const NONCE_BYTES = 16;
export const SEED_BYTES = 32;
export const RANDOM_BYTES = 4 * SEED_BYTES;
/** The version of the draft's format. */
const VERSION = 18;
const USAGE = {
  measurementShare: 1, proofShare: 2, jointRandomness: 3, proveRandomness: 4, jointSeed: 6, jointPart: 7,
};
const N_PROOFS = 1;
const HELPER = 1;

/**
 * Split the bits of a vote into shares with a proof; the randomness is a device's own, and used once.
 * @param {Circuit} circuit
 * @param {number} algorithm codepoint
 * @param {Uint8Array<ArrayBuffer>} context what both servers and devices know of the round
 * @param {readonly number[]} bits
 * @param {Uint8Array<ArrayBuffer>} nonce
 * @param {Uint8Array<ArrayBuffer>} randomness
 * @returns {{ public: Uint8Array<ArrayBuffer>, leader: Uint8Array<ArrayBuffer>, helper: Uint8Array<ArrayBuffer> }}
 */
export function shard(circuit, algorithm, context, bits, nonce, randomness) {
  if (bits.length !== circuit.nBits || nonce.length !== NONCE_BYTES || randomness.length !== RANDOM_BYTES) {
    throw new RangeError("a nonce, randomness or vote of another length");
  }
  const [seed, helperBlind, leaderBlind, proveSeed] = [0, 1, 2, 3].map((index) =>
    randomness.subarray(index * SEED_BYTES, (index + 1) * SEED_BYTES),
  );
  /** @param {number} usage @param {Uint8Array<ArrayBuffer>} key @param {Uint8Array<ArrayBuffer>[]} binder */
  const message = (usage, key, ...binder) => frame(algorithm, usage, context, key, binder);
  const helper = Uint8Array.of(HELPER);
  const proofs = Uint8Array.of(N_PROOFS);
  const mask = expand(message(USAGE.measurementShare, seed, helper), circuit.nBits);
  const vote = encode(bits.map((bit, index) => reduce(BigInt(bit) - mask[index])));
  const parts = concatBytes(
    turboshake128(message(USAGE.jointPart, leaderBlind, Uint8Array.of(0), nonce, vote), SEED_BYTES),
    turboshake128(message(USAGE.jointPart, helperBlind, helper, nonce, encode(mask)), SEED_BYTES),
  );
  const jointSeed = turboshake128(message(USAGE.jointSeed, new Uint8Array(SEED_BYTES), parts), SEED_BYTES);
  const joint = expand(message(USAGE.jointRandomness, jointSeed, proofs), countBitCalls(circuit));
  const wireSeeds = expand(message(USAGE.proveRandomness, proveSeed, proofs), 2 * circuit.chunkLength);
  const proofMask = expand(message(USAGE.proofShare, seed, proofs, helper), proofLength(circuit));
  const proof = prove(circuit, bits, wireSeeds, joint).map((number, index) => reduce(number - proofMask[index]));
  return { public: parts, leader: concatBytes(vote, encode(proof), leaderBlind), helper: concatBytes(seed, helperBlind) };
}

/**
 * Prove that bits are a vote: values of the gadget's polynomial, after the seeds that hide its wires.
 * @param {Circuit} circuit
 * @param {readonly number[]} bits
 * @param {readonly bigint[]} wireSeeds
 * @param {readonly bigint[]} joint
 * @returns {bigint[]}
 */
function prove(circuit, bits, wireSeeds, joint) {
  const length = circuit.chunkLength;
  const even = [wireSeeds.filter((_, index) => index % 2 === 0)];
  const odd = [wireSeeds.filter((_, index) => index % 2 === 1)];
  split(bits.map(BigInt), length).forEach((chunk, call) => {
    let factor = 1n;
    even.push(chunk.map((bit) => (factor = (factor * joint[call]) % MODULUS) * bit));
    odd.push(chunk.map((bit) => bit - 1n));
  });
  for (const chunk of split(squared(circuit, bits), length)) {
    even.push(chunk);
    odd.push(chunk);
  }
  const empty = Array(length).fill(0n);
  while (even.length < countPoints(circuit)) {
    even.push(empty);
    odd.push(empty);
  }
  const atRoots = even.map((row, point) => multiply(row, odd[point]));
  const wires = double(even.map((row, point) => [...row, ...odd[point]].map(reduce)));
  const between = wires.map((row) => multiply(row.slice(0, length), row.slice(length)));
  return [...wireSeeds, ...atRoots.flatMap((value, point) => [value, between[point]]).slice(0, -1)];
}

/**
 * @param {Circuit} circuit
 * @param {readonly number[]} bits
 * @returns {bigint[]} outputs less a ball's centre; none of other circuits
 */
function squared({ outputWeights, nOutputs, centre }, bits) {
  if (centre === null) return [];
  const width = outputWeights.length;
  return Array.from({ length: nOutputs }, (_, output) =>
    BigInt(outputWeights.reduce((sum, weight, place) => sum + weight * bits[output * width + place], -centre)),
  );
}

/**
 * @param {readonly bigint[]} left
 * @param {readonly bigint[]} right
 * @returns {bigint} the sum of products
 */
const multiply = (left, right) => reduce(left.reduce((sum, number, index) => sum + number * right[index], 0n));

/**
 * @param {readonly bigint[]} numbers
 * @param {number} length
 * @returns {bigint[][]} chunks, the last one filled with zeros
 */
function split(numbers, length) {
  return Array.from({ length: Math.ceil(numbers.length / length) }, (_, chunk) =>
    Array.from({ length }, (_, place) => numbers[chunk * length + place] ?? 0n),
  );
}

/**
 * Return what is hashed: a tag of version, algorithm, usage and context, then the seed and a binder.
 * @param {number} algorithm
 * @param {number} usage
 * @param {Uint8Array<ArrayBuffer>} context
 * @param {Uint8Array<ArrayBuffer>} seed
 * @param {readonly Uint8Array<ArrayBuffer>[]} binder
 * @returns {Uint8Array<ArrayBuffer>}
 */
function frame(algorithm, usage, context, seed, binder) {
  const head = new Uint8Array(10);
  const view = new DataView(head.buffer);
  view.setUint16(0, 8 + context.length, true);
  view.setUint8(2, VERSION);
  view.setUint32(4, algorithm);
  view.setUint16(8, usage);
  return concatBytes(head, context, Uint8Array.of(seed.length), seed, ...binder);
}
