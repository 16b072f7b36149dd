// @ts-check
/** Bounded vectors: clipped on the device, on an integer grid. */

import { requireKnown } from "./errors.js";
import { isPositive, isWhole } from "./numbers.js";
import { roundToInteger } from "./sampling/rounding.js";

/** Grid points per unit of the bound. */
export const GRID = 1 << 14;
const COORDINATES_MAX = 1 << 20;
const ROUNDING = 1 + 2 ** -40;
/** How far two people's vectors may be from each other, in bounds: no two joint ones are opposite. @type {Record<string, number>} */
const DIAMETERS = { l2: 2, joint: Math.sqrt(8 / 3) };

/** @param {number[]} vector */
export const lengthOf = (vector) => Math.sqrt(vector.reduce((sum, entry) => sum + entry * entry, 0));

/** @param {number[]} left @param {number[]} right */
export const dot = (left, right) => left.reduce((sum, value, i) => sum + value * right[i], 0);

/** A row times a matrix. @param {number[]} row @param {number[][]} matrix */
export function multiplyRow(row, matrix) {
  const product = new Array(matrix[0].length).fill(0);
  row.forEach((value, i) => matrix[i].forEach((entry, j) => (product[j] += value * entry)));
  return /** @type {number[]} */ (product);
}

/** The vectors within a bound of 0, by their length. */
export class Ball {
  /** @param {any} decoded */
  constructor(decoded) {
    const { norm, bound, coordinates } = decoded ?? {};
    requireKnown(Object.hasOwn(DIAMETERS, norm) && isPositive(bound) && isWhole(coordinates, 1, COORDINATES_MAX), "ball");
    this.norm = /** @type {string} */ (norm);
    this.bound = /** @type {number} */ (bound);
    this.coordinates = /** @type {number} */ (coordinates);
  }

  /** Distance of grid points. */
  get step() {
    return this.bound / GRID;
  }

  /** Largest distance of two people's vectors on the grid, in grid points; rounding included. */
  get diameter() {
    return ((DIAMETERS[this.norm] * this.bound) / this.step + 2 * Math.sqrt(this.coordinates)) * ROUNDING;
  }

  /** Shorten what is too long. @param {number[]} vector */
  clip(vector) {
    requireKnown(vector.length === this.coordinates && vector.every(Number.isFinite), "vector");
    const length = lengthOf(vector);
    return length > this.bound ? vector.map((entry) => entry * (this.bound / length)) : vector;
  }

  /** As integers, rounded at random so that nothing is moved on average. @param {number[]} vector @param {import("./platform.js").Noise} noise */
  onGrid(vector, noise) {
    const words = noise(vector.length);
    return this.clip(vector).map((entry, i) => roundToInteger(entry / this.step, words[i]));
  }
}
