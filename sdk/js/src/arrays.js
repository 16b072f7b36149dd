// @ts-check
/** Arrays inside a policy: `[dtype, shape, bytes]`. */

import { requireKnown } from "./errors.js";
import { isWhole } from "./numbers.js";

/** Longest axis of an array without bytes: a few bytes cannot ask for more memory. */
const EMPTY_MAX = 1 << 22;

/** @type {Record<string, [number, (view: DataView, at: number) => number]>} */
const KINDS = {
  "|b1": [1, (view, at) => view.getUint8(at)],
  "<i2": [2, (view, at) => view.getInt16(at, true)],
  "<u4": [4, (view, at) => view.getUint32(at, true)],
  "<f8": [8, (view, at) => view.getFloat64(at, true)],
  "<i8": [8, (view, at) => Number(view.getBigInt64(at, true))],
};

/**
 * Read an array of a kind and a number of axes.
 * @param {any} value @param {string} dtype @param {number} axes
 * @returns {{shape: number[], values: number[]}} values in row-major order
 */
export function readArray(value, dtype, axes) {
  requireKnown(Array.isArray(value) && value.length === 3 && value[0] === dtype && value[2] instanceof Uint8Array, "array");
  const [, shape, bytes] = value;
  const [size, read] = KINDS[dtype];
  const maxSize = Math.max(bytes.length, EMPTY_MAX);
  const good = Array.isArray(shape) && shape.length === axes && shape.every((length) => isWhole(length, 0, maxSize));
  requireKnown(good && shape.reduce((product, entry) => product * entry, 1) * size === bytes.length, "array");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const values = Array.from({ length: bytes.length / size }, (_, i) => read(view, i * size));
  requireKnown(dtype !== "|b1" || values.every((entry) => entry <= 1), "array");
  return { shape, values };
}

/** Places of what is not 0. @param {number[]} flags */
export const findTrue = (flags) => flags.flatMap((on, place) => (on ? [place] : []));

/** @param {any} value @param {string} dtype @returns {number[]} */
export const readList = (value, dtype) => readArray(value, dtype, 1).values;

/** @param {any} value @param {string} dtype @returns {{rows: number[][], columns: number}} */
export function readTable(value, dtype) {
  const { shape, values } = readArray(value, dtype, 2);
  const [length, columns] = shape;
  const empty = /** @type {number[]} */ ([]);
  const row = (/** @type {number} */ i) => (columns ? values.slice(i * columns, (i + 1) * columns) : empty);
  return { rows: Array.from({ length }, (_, i) => row(i)), columns };
}
