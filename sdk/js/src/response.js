// @ts-check
/** Randomized response and subset selection, whose probabilities are certified in exact integers. */

import { requirePossible } from "./errors.js";
import { isPositive, isWhole } from "./numbers.js";

const WORD = 1n << 64n;

/** What sends a symbol of the person's own with a fixed probability, and otherwise a uniform one of all. */
class Response {
  /** @param {number} epsilon pure local privacy of a symbol @param {number} symbols size of the alphabet @param {number} nOwn how many symbols are a person's own */
  constructor(epsilon, symbols, nOwn) {
    requirePossible(isPositive(epsilon, 30), "epsilon");
    requirePossible(isWhole(symbols, 2, 32_768), "symbols");
    requirePossible(nOwn >= 1 && nOwn < symbols, "n_own");
    this.symbols = BigInt(symbols);
    /** Words below it send an own symbol. */
    this.threshold = findThreshold(epsilon, this.symbols, BigInt(nOwn));
  }
}

export class RandomizedResponse extends Response {
  /** @param {number} epsilon @param {number} symbols */
  constructor(epsilon, symbols) {
    super(epsilon, symbols, 1);
  }

  /**
   * Keep the true symbol if the first word is below the threshold; else send a uniform one.
   * @param {number} truth -1: there is none @param {bigint[]} words two, uniform of 64 bits
   */
  randomize(truth, words) {
    return truth >= 0 && words[0] < this.threshold ? truth : Number((words[1] * this.symbols) >> 64n);
  }
}

export class SubsetResponse extends Response {
  /**
   * Send one of the own symbols if the first word is below the threshold, the second word says which; else a uniform one.
   * @param {number[]} ownSymbols @param {bigint[]} words three, uniform of 64 bits
   */
  randomize(ownSymbols, words) {
    if (words[0] < this.threshold) return ownSymbols[Number((words[1] * BigInt(ownSymbols.length)) >> 64n)];
    return Number((words[2] * this.symbols) >> 64n);
  }
}

/** The largest threshold whose ratio of probabilities is at most e^epsilon. @param {number} epsilon @param {bigint} symbols @param {bigint} nOwn */
function findThreshold(epsilon, symbols, nOwn) {
  // The exponential is good to an ulp or two; four ulps down is below the true value.
  const [above, below] = toFraction(Math.exp(epsilon));
  const e = above * ((1n << 50n) - 1n);
  const unit = below << 50n;
  const least = WORD / symbols;
  const most = (WORD + symbols - 1n) / symbols;
  const picked = (WORD + nOwn - 1n) / nOwn;
  const numerator = e * least - most * unit;
  return numerator > 0n ? (numerator * WORD) / (picked * unit + numerator) : 0n;
}

/** A number of floating point as numerator and denominator. @param {number} value @returns {[bigint, bigint]} */
function toFraction(value) {
  let shift = 0n;
  while (!Number.isInteger(value)) {
    value *= 2;
    shift += 1n;
  }
  return [BigInt(value), 1n << shift];
}
