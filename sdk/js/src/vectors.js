// @ts-check
/** Bounded vectors: clipped on the device, on an integer grid. */

import { sound } from "./errors.js";
import { isWhole, isWithin } from "./numbers.js";

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
    const { norm, bound, coordinates, below = 1 } = told ?? {};
    sound(norm === "l2" && bound > 0 && isWithin(bound, 0, Number.MAX_VALUE) && isWhole(coordinates, 1, COORDINATES_MAX) && below > 0 && isWithin(below, 0, 1), "ball");
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
    const apart = Math.min(2, Math.SQRT2 * sides) * (this.bound / this.step);
    return (apart + 2 * Math.sqrt(this.coordinates)) * ROUNDING;
  }

  /** Shorten what is too long. @param {number[]} vector */
  clip(vector) {
    sound(vector.length === this.coordinates && vector.every(Number.isFinite), "vector");
    const most = this.below * this.bound;
    const negative = this.below < 1 ? lengthOf(vector.map((one) => Math.min(one, 0))) : 0;
    const cut = negative > most ? vector.map((one) => (one < 0 ? one * (most / negative) : one)) : vector;
    const length = lengthOf(cut);
    return length > this.bound ? cut.map((one) => one * (this.bound / length)) : cut;
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
