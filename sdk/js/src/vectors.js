// @ts-check
/** Bounded vectors: clipped on the device, on an integer grid. */

import { malformed } from "./errors.js";

/** Grid points per unit of the bound. */
export const GRID = 1 << 14;
const COORDINATES_MAX = 1 << 20;
const ROUNDING = 1 + 2 ** -40;

/** @param {number[]} vector */
export const lengthOf = (vector) => Math.sqrt(vector.reduce((sum, one) => sum + one * one, 0));

/** @param {number[]} one @param {number[]} other */
export const dot = (one, other) => one.reduce((sum, value, i) => sum + value * other[i], 0);

/** A row times a matrix. @param {number[]} row @param {number[][]} matrix */
export function product(row, matrix) {
  const found = new Array(matrix[0].length).fill(0);
  row.forEach((value, i) => matrix[i].forEach((one, j) => (found[j] += value * one)));
  return /** @type {number[]} */ (found);
}

/** The vectors within a bound of 0, by their length. */
export class Ball {
  /** @param {any} told */
  constructor(told) {
    const { norm, bound, coordinates } = told ?? {};
    const sized = Number.isSafeInteger(coordinates) && coordinates >= 1 && coordinates <= COORDINATES_MAX;
    if (norm !== "l2" || !(bound > 0 && Number.isFinite(bound)) || !sized) throw malformed("not a ball");
    this.bound = /** @type {number} */ (bound);
    this.coordinates = /** @type {number} */ (coordinates);
  }

  /** Distance of grid points. */
  get step() {
    return this.bound / GRID;
  }

  /** Largest distance of two people's vectors on the grid, in grid points; rounding included. */
  get diameter() {
    return 2 * (this.bound / this.step + Math.sqrt(this.coordinates)) * ROUNDING;
  }

  /** Shorten what is too long. @param {number[]} vector */
  clip(vector) {
    if (vector.length !== this.coordinates || !vector.every(Number.isFinite)) throw malformed("a vector does not fit");
    const length = lengthOf(vector);
    return length > this.bound ? vector.map((one) => one * (this.bound / length)) : vector;
  }

  /** As integers, rounded at random so that nothing is moved on average. @param {number[]} vector @param {import("./platform.js").Noise} noise */
  onGrid(vector, noise) {
    const words = noise(vector.length);
    return this.clip(vector).map((one, i) => {
      const scaled = one / this.step;
      const low = Math.floor(scaled);
      return low + (Number(words[i] >> 11n) * 2 ** -53 < scaled - low ? 1 : 0);
    });
  }
}
