// @ts-check
/** Normal noise on a grid of integers from random words, as `privateer_core.sampling.normal` has it: floating point leaks nothing. */

import { possible } from "../errors.js";

const LEAST = 256;
const MOST = 2 ** 40;
/** Noise is drawn up to so many standard deviations, and to the end of a bin. */
export const REACH = 11.3;
const COST = 2 ** -47;
const SPARE = 29n;
const WORD = 1n << 64n;

/** What drawing so many numbers adds to delta, for epsilon up to 30. @param {number} count */
export const samplingCost = (count) => (count + 2) * COST;

/** Draws integers distributed as a normal variable rounded to the nearest one. */
export class RoundedNormal {
  /** @param {number} deviation in grid units */
  constructor(deviation) {
    possible(deviation >= LEAST && deviation <= MOST, "standard_deviation");
    this.deviation = deviation;
    this.width = 2 ** Math.max(0, Math.floor(Math.log2(deviation / 64)));
    const bins = Math.ceil((REACH * deviation) / this.width);
    this.heads = Array.from({ length: bins }, (_, bin) => this.weight(bin * this.width));
    this.words = wordsOf(this.heads);
    /** @type {bigint[]} */
    this.edges = [];
    this.words.slice(0, -1).reduce((sum, own) => (this.edges.push(sum + own), sum + own), 0n);
    const least = this.words.reduce((low, own, bin) => Math.min(low, Number(own) / this.heads[bin]), Infinity);
    this.scales = this.words.map((own) => (least * (1 - 2 ** -40)) / Number(own));
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
      const found = this.propose(noise(3));
      if (found !== null) return found;
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
    if ((negative && magnitude === 0) || !under(accept, spare, this.weight(magnitude) * this.scales[low])) return null;
    return negative ? -magnitude : magnitude;
  }
}

/** True with a probability below 1; spare bits decide where the word ties. @param {bigint} word @param {bigint} spare @param {number} probability */
function under(word, spare, probability) {
  const scaled = probability * 2 ** 64;
  const limit = BigInt(Math.floor(scaled));
  const part = BigInt(Math.floor((scaled - Math.floor(scaled)) * 2 ** Number(SPARE)));
  return word < limit || (word === limit && spare < part);
}

/** How many words pick each bin: in proportion to its head, rounded up; the first has the rest. @param {number[]} heads */
function wordsOf(heads) {
  // Exact: numbers of floating point are whole multiples of 2^-1074, and these are far larger.
  const exact = heads.map((head) => whole(head, 400));
  const total = exact.reduce((sum, one) => sum + one);
  const later = exact.slice(1).map((one) => (one * WORD + total - 1n) / total);
  return [WORD - later.reduce((sum, one) => sum + one), ...later];
}

/** A number times 2^shift, without rounding. @param {number} value @param {number} shift */
function whole(value, shift) {
  let left = shift;
  for (; !Number.isInteger(value); left--) value *= 2;
  return BigInt(value) << BigInt(left);
}
