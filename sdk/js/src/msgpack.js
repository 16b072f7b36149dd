// @ts-check
/** The part of msgpack that the wire format uses. Integers beyond 2^53 are BigInt; bin is Uint8Array. */

import { concatBytes, utf8 } from "./bytes.js";
import { requireKnown } from "./errors.js";
import { isWhole } from "./numbers.js";

const DEPTH_MAX = 64;
const text = new TextDecoder("utf-8", { fatal: true });
/** The names of the numbers in a list or map that are written as fractions, also where they are whole. @type {WeakMap<object, Set<string | number>>} */
const fractions = new WeakMap();

/** Whether a number, or one of a list, is written as a fraction. @param {any} holder @param {string} name */
export const hasFraction = (holder, name) => fractions.has(holder[name]) || fractions.get(holder)?.has(name);

class Reader {
  /** @param {Uint8Array<ArrayBuffer>} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  /** @param {number} length */
  take(length) {
    requireKnown(this.at + length <= this.bytes.length, "bytes");
    this.at += length;
    return this.at - length;
  }

  /** @param {number} size bytes of an unsigned integer @returns {any} */
  unsigned(size) {
    return toPlainNumber(this.bin(size).reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n));
  }

  /** @param {number} size @returns {any} */
  signed(size) {
    return toPlainNumber(BigInt.asIntN(8 * size, BigInt(this.unsigned(size))));
  }

  /** @param {number} length */
  bin(length) {
    const at = this.take(length);
    return this.bytes.slice(at, at + length);
  }

  /** @param {number} length */
  str(length) {
    const at = this.take(length);
    return text.decode(this.bytes.subarray(at, at + length));
  }

  /** @param {number} length @param {number} depth */
  array(length, depth) {
    /** @type {any[]} */
    const values = [];
    for (let i = 0; i < length; i++) values.push(this.entry(values, i, depth));
    return values;
  }

  /** @param {number} length @param {number} depth */
  map(length, depth) {
    /** @type {Record<string, any>} */
    const values = Object.create(null);
    for (let i = 0; i < length; i++) {
      const key = this.value(depth + 1);
      requireKnown(typeof key === "string" && !(key in values), "bytes");
      values[key] = this.entry(values, key, depth);
    }
    return values;
  }

  /** @param {object} holder @param {string | number} name @param {number} depth */
  entry(holder, name, depth) {
    if ((this.bytes[this.at] | 1) === 0xcb) fractions.set(holder, (fractions.get(holder) ?? new Set()).add(name));
    return this.value(depth + 1);
  }

  /** @param {number} depth @returns {any} */
  value(depth) {
    requireKnown(depth <= DEPTH_MAX, "bytes");
    const kind = this.bytes[this.take(1)];
    if (kind < 0x80) return kind;
    if (kind < 0x90) return this.map(kind & 15, depth);
    if (kind < 0xa0) return this.array(kind & 15, depth);
    if (kind < 0xc0) return this.str(kind & 31);
    if (kind >= 0xe0) return kind - 256;
    return this.tagged(kind, depth);
  }

  /** @param {number} kind @param {number} depth @returns {any} */
  tagged(kind, depth) {
    switch (kind) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return this.bin(this.unsigned(1 << (kind - 0xc4)));
      case 0xca: return new DataView(this.bin(4).buffer).getFloat32(0);
      case 0xcb: return new DataView(this.bin(8).buffer).getFloat64(0);
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return this.unsigned(1 << (kind - 0xcc));
      case 0xd0: case 0xd1: case 0xd2: case 0xd3: return this.signed(1 << (kind - 0xd0));
      case 0xd9: case 0xda: case 0xdb: return this.str(this.unsigned(1 << (kind - 0xd9)));
      case 0xdc: case 0xdd: return this.array(this.unsigned(2 << (kind - 0xdc)), depth);
      case 0xde: case 0xdf: return this.map(this.unsigned(2 << (kind - 0xde)), depth);
      default: return requireKnown(false, "bytes");
    }
  }
}

/** @param {bigint} value */
function toPlainNumber(value) {
  const number = Number(value);
  return isWhole(number) ? number : value;
}

/** @param {Uint8Array<ArrayBuffer>} bytes @returns {any} */
export function decode(bytes) {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  requireKnown(reader.at === bytes.length, "bytes");
  return value;
}

/** @param {any} value null, text, bytes, unsigned integers and arrays of these @returns {Uint8Array<ArrayBuffer>} */
export function encode(value) {
  if (typeof value === "string") {
    const bytes = utf8(value);
    return concatBytes(bytes.length < 32 ? [0xa0 + bytes.length] : encodeHeader(0xd9, bytes.length), bytes);
  }
  if (value instanceof Uint8Array) return concatBytes(encodeHeader(0xc4, value.length), /** @type {any} */ (value));
  if (Array.isArray(value)) {
    if (value.length > 15) throw new RangeError("more than 15 entries");
    return concatBytes([0x90 + value.length], ...value.map(encode));
  }
  if (isWhole(value, 0)) return new Uint8Array(value < 0x80 ? [value] : encodeHeader(0xcc, value));
  throw new TypeError("cannot be encoded");
}

/** @param {number} tag of one byte @param {number} value in the fewest bytes, of a power of two, that hold it */
function encodeHeader(tag, value) {
  let size = 1;
  while (value >= 2 ** (8 * size)) {
    size *= 2;
    tag += 1;
  }
  return [tag, ...Array.from({ length: size }, (_, place) => Math.floor(value / 2 ** (8 * (size - place - 1))) % 256)];
}
