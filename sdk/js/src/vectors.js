// @ts-check
/** Bounded vectors: clipped on the device, on an integer grid. */

import { requireKnown } from "./errors.js";
import { isWhole, isWithin } from "./numbers.js";

/** Grid points per unit of the bound. */
export const GRID = 1 << 14;
const COORDINATES_MAX = 1 << 20;
const ROUNDING = 1 + 2 ** -40;

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
    const { norm, bound, coordinates, below = 1 } = decoded ?? {};
    requireKnown(norm === "l2" && bound > 0 && isWithin(bound, 0, Number.MAX_VALUE) && isWhole(coordinates, 1, COORDINATES_MAX) && below > 0 && isWithin(below, 0, 1), "ball");
    this.bound = /** @type {number} */ (bound);
    /** The most that the negative coordinates are long, by the bound. */
    this.below = /** @type {number} */ (below);
    this.coordinates = /** @type {number} */ (coordinates);
  }

  /** Distance of grid points. */
  get step() {
    return this.bound / GRID;
  }

  /** Largest distance of two people's vectors on the grid, in grid points; rounding included. */
  get diameter() {
    const { below } = this;
    const sides = below < Math.SQRT1_2 ? below + Math.sqrt(1 - below * below) : Math.SQRT2;
    const distance = Math.min(2, Math.SQRT2 * sides) * (this.bound / this.step);
    return (distance + 2 * Math.sqrt(this.coordinates)) * ROUNDING;
  }

  /** Shorten what is too long. @param {number[]} vector */
  clip(vector) {
    requireKnown(vector.length === this.coordinates && vector.every(Number.isFinite), "vector");
    const maxNegative = this.below * this.bound;
    const negative = this.below < 1 ? lengthOf(vector.map((entry) => Math.min(entry, 0))) : 0;
    const cut = negative > maxNegative ? vector.map((entry) => (entry < 0 ? entry * (maxNegative / negative) : entry)) : vector;
    const length = lengthOf(cut);
    return length > this.bound ? cut.map((entry) => entry * (this.bound / length)) : cut;
  }

  /** As integers, rounded at random so that nothing is moved on average. @param {number[]} vector @param {import("./platform.js").Noise} noise */
  onGrid(vector, noise) {
    const words = noise(vector.length);
    return this.clip(vector).map((entry, i) => {
      const scaled = entry / this.step;
      const low = Math.floor(scaled);
      return low + (Number(words[i] >> 11n) * 2 ** -53 < scaled - low ? 1 : 0);
    });
  }
}
