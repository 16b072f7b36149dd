// @ts-check
/** Bytes and text. */

/** @param {Uint8Array} bytes */
export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export const unhex = (text) => Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));

/** @param {Uint8Array} left @param {Uint8Array} right */
export const areEqualBytes = (left, right) => left.length === right.length && left.every((byte, i) => byte === right[i]);

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export const utf8 = (text) => new TextEncoder().encode(text);

/** What JSON says; it throws where it is none. @param {Uint8Array} bytes @returns {any} */
export const json = (bytes) => JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));

/** A whole number in so many bytes, the lowest first. @param {number} size at most 4 @param {number} value */
export const encodeLittleEndian = (size, value) => Array.from({ length: size }, (_, place) => (value >> (8 * place)) & 255);

/** @param {(Uint8Array<ArrayBuffer> | number[])[]} parts */
export function concatBytes(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
