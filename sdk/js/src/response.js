// @ts-check
/** Randomized response whose probabilities are certified in exact integers. */

import { refused } from "./errors.js";

const WORD = 1n << 64n;

export class RandomizedResponse {
  /** @param {number} epsilon pure local privacy of a symbol @param {number} symbols size of the alphabet */
  constructor(epsilon, symbols) {
    if (!(epsilon > 0 && epsilon <= 30)) throw refused("there is no such randomizer", "epsilon");
    if (!(Number.isSafeInteger(symbols) && symbols >= 2 && symbols <= 32_768)) {
      throw refused("there is no such randomizer", "symbols");
    }
    this.symbols = BigInt(symbols);
    this.threshold = threshold(epsilon, this.symbols);
  }

  /**
   * Keep the true symbol if the first word is below the threshold; else send a uniform one.
   * @param {number} truth -1: there is none @param {bigint[]} words two, uniform of 64 bits
   */
  randomize(truth, words) {
    return truth >= 0 && words[0] < this.threshold ? truth : Number((words[1] * this.symbols) >> 64n);
  }
}

/** The largest threshold whose ratio of probabilities is at most e^epsilon. @param {number} epsilon @param {bigint} symbols */
function threshold(epsilon, symbols) {
  // The exponential is good to an ulp or two; four ulps down is below the true value.
  const [above, below] = fraction(Math.exp(epsilon));
  const e = above * ((1n << 50n) - 1n);
  const one = below << 50n;
  const least = WORD / symbols;
  const most = (WORD + symbols - 1n) / symbols;
  const more = e * least - most * one;
  const kept = (more * WORD) / (WORD * one + more);
  return more > 0n ? kept : 0n;
}

/** A number of floating point as numerator and denominator. @param {number} value @returns {[bigint, bigint]} */
function fraction(value) {
  let shift = 0n;
  while (!Number.isInteger(value)) {
    value *= 2;
    shift += 1n;
  }
  return [BigInt(value), 1n << shift];
}
