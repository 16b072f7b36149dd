// @ts-check
/** What a person tells about a context: vectors of length 1 at most. */

import { clipNumber } from "../../numbers.js";
import { lengthOf } from "../../vectors.js";

/** Shorter vectors have no direction. */
export const SHORTEST = 1e-100;
const SURE = 0.02;

/** The expected reward of x theta, away from 0 and 1. @param {string} name @param {number} value */
export const applyLink = (name, value) =>
  name === "identity" ? clipNumber(value, SURE, 1 - SURE) : SURE + (1 - 2 * SURE) / (1 + Math.exp(-value));

/** A row, shortened to length 1. @param {number[]} row */
export function clipRow(row) {
  const length = Math.max(1, lengthOf(row));
  return row.map((entry) => entry / length);
}

/** The second moments of a row, which is shortened to length 1: products, those of two coordinates times the root of 2. @param {number[]} row */
export function encodeSquares(row) {
  const short = clipRow(row);
  return short.flatMap((left, i) => short.slice(i).map((right, j) => left * right * (j ? Math.SQRT2 : 1)));
}
