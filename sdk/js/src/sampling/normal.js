// @ts-check
/** Normal noise on a grid of integers from random words, as `privateer_core.sampling.normal` has it: floating point leaks nothing. */

import { requirePossible } from "../errors.js";

const LEAST = 256;
const MOST = 2 ** 40;
/** Noise is drawn up to so many standard deviations, and to the end of a bin. */
export const REACH = 11.3;
const COST = 2 ** -47;
const SPARE = 29n;
const WORD = 1n << 64n;

/** What drawing so many numbers adds to delta, for epsilon up to 30. @param {number} count */
export const samplingCost = (count) => (count + 2) * COST;

/** Whether noise of a deviation, in grid units, is drawn with all digits. @param {number} deviation */
export const isDrawable = (deviation) => deviation >= LEAST && deviation <= MOST;

/** Draws integers distributed as a normal variable rounded to the nearest one. */
export class RoundedNormal {
  /** @param {number} deviation in grid units */
  constructor(deviation) {
    requirePossible(isDrawable(deviation), "standard_deviation");
    this.deviation = deviation;
    this.width = 2 ** Math.max(0, Math.floor(Math.log2(deviation / 64)));
    const bins = Math.ceil((REACH * deviation) / this.width);
    this.heads = Array.from({ length: bins }, (_, bin) => this.weight(bin * this.width));
    this.words = dealWords(this.heads);
    /** @type {bigint[]} */
    this.edges = [];
    this.words.slice(0, -1).reduce((sum, weight) => (this.edges.push(sum + weight), sum + weight), 0n);
    const minRatio = this.words.reduce((low, weight, bin) => Math.min(low, Number(weight) / this.heads[bin]), Infinity);
    this.scales = this.words.map((weight) => (minRatio * (1 - 2 ** -40)) / Number(weight));
  }

  /** The probability of an integer, up to a constant: the density's average over an interval of length 1. @param {number} magnitude */
  weight(magnitude) {
    const s = this.deviation;
    const y = (magnitude / s) ** 2;
    const second = (y - 1) / (24 * s ** 2);
    const fourth = (y * y - 6 * y + 3) / (1920 * s ** 4);
    const sixth = (y ** 3 - 15 * y * y + 45 * y - 15) / (322_560 * s ** 6);
    return Math.exp(-y / 2) * (1 + second + fourth + sixth);
  }

  /** @param {import("../platform.js").Noise} noise @returns {number} */
  draw(noise) {
    for (;;) {
      const draw = this.propose(noise(3));
      if (draw !== null) return draw;
    }
  }

  /** An integer, or null where it is not accepted. @param {bigint[]} words three */
  propose([pick, place, accept]) {
    let [low, high] = [0, this.edges.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.edges[middle] <= pick) low = middle + 1;
      else high = middle;
    }
    const magnitude = low * this.width + Number(place & BigInt(this.width - 1));
    const negative = place >> 63n === 1n;
    const spare = (place >> (63n - SPARE)) & ((1n << SPARE) - 1n);
    // Zero has one sign only.
    if ((negative && magnitude === 0) || !isUnder(accept, spare, this.weight(magnitude) * this.scales[low])) return null;
    return negative ? -magnitude : magnitude;
  }
}

/** True with a probability below 1; spare bits decide where the word ties. @param {bigint} word @param {bigint} spare @param {number} probability */
function isUnder(word, spare, probability) {
  const scaled = probability * 2 ** 64;
  const limit = BigInt(Math.floor(scaled));
  const part = BigInt(Math.floor((scaled - Math.floor(scaled)) * 2 ** Number(SPARE)));
  return word < limit || (word === limit && spare < part);
}

/** How many words pick each bin: in proportion to its head, rounded up; the first has the rest. @param {number[]} heads */
function dealWords(heads) {
  // Exact: numbers of floating point are whole multiples of 2^-1074, and these are far larger.
  const exact = heads.map((head) => floorShifted(head, 400));
  const total = exact.reduce((sum, weight) => sum + weight);
  const later = exact.slice(1).map((weight) => (weight * WORD + total - 1n) / total);
  return [WORD - later.reduce((sum, weight) => sum + weight), ...later];
}

/** A number times 2^shift, without rounding. @param {number} value @param {number} shift */
function floorShifted(value, shift) {
  let remainder = shift;
  for (; !Number.isInteger(value); remainder--) value *= 2;
  return BigInt(value) << BigInt(remainder);
}
