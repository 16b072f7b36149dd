// @ts-check
/** Any value in MessagePack: what a server could publish, and `src/msgpack.js` need not write. */

const LENGTH = { text: 0xdb, bytes: 0xc6, array: 0xdd, map: 0xdf };

/** @param {any} value null, truth, numbers, text, bytes, arrays and maps of these @returns {Buffer} */
export function packed(value) {
  if (value === null || value === undefined) return Buffer.from([0xc0]);
  if (typeof value === "boolean") return Buffer.from([value ? 0xc3 : 0xc2]);
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return whole(BigInt(value));
  if (typeof value === "number") return double(value);
  if (typeof value === "string") return headed(LENGTH.text, Buffer.byteLength(value), Buffer.from(value));
  if (value instanceof Uint8Array) return headed(LENGTH.bytes, value.length, value);
  if (Array.isArray(value)) return headed(LENGTH.array, value.length, ...value.map(packed));
  const fields = Object.entries(value);
  return headed(LENGTH.map, fields.length, ...fields.flat().map(packed));
}

/** @param {bigint} value */
function whole(value) {
  const bytes = Buffer.alloc(9, value < 0n ? 0xd3 : 0xcf);
  if (value < 0n) bytes.writeBigInt64BE(value, 1);
  else bytes.writeBigUInt64BE(value, 1);
  return bytes;
}

/** @param {number} value */
function double(value) {
  const bytes = Buffer.alloc(9, 0xcb);
  bytes.writeDoubleBE(value, 1);
  return bytes;
}

/** @param {number} kind @param {number} length @param {...Uint8Array} rest */
function headed(kind, length, ...rest) {
  const head = Buffer.alloc(5, kind);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, ...rest]);
}
