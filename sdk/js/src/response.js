// @ts-check
/** Randomized response and subset selection, whose probabilities are certified in exact integers. */

import { possible } from "./errors.js";
import { isWhole, isWithin } from "./numbers.js";

const WORD = 1n << 64n;

/** What sends a symbol of the person's own with a fixed probability, and otherwise a uniform one of all. */
class Response {
  /** @param {number} epsilon pure local privacy of a symbol @param {number} symbols size of the alphabet @param {number} own */
  constructor(epsilon, symbols, own) {
    possible(epsilon > 0 && isWithin(epsilon, 0, 30), "epsilon");
    possible(isWhole(symbols, 2, 32_768), "symbols");
    possible(own >= 1 && own < symbols, "own");
    this.symbols = BigInt(symbols);
    /** Words below it send an own symbol. */
    this.threshold = threshold(epsilon, this.symbols, BigInt(own));
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
   * @param {number[]} own @param {bigint[]} words three, uniform of 64 bits
   */
  randomize(own, words) {
    if (words[0] < this.threshold) return own[Number((words[1] * BigInt(own.length)) >> 64n)];
    return Number((words[2] * this.symbols) >> 64n);
  }
}

/** The largest threshold whose ratio of probabilities is at most e^epsilon. @param {number} epsilon @param {bigint} symbols @param {bigint} own */
function threshold(epsilon, symbols, own) {
  // The exponential is good to an ulp or two; four ulps down is below the true value.
  const [above, below] = fraction(Math.exp(epsilon));
  const e = above * ((1n << 50n) - 1n);
  const one = below << 50n;
  const least = WORD / symbols;
  const most = (WORD + symbols - 1n) / symbols;
  const picked = (WORD + own - 1n) / own;
  const more = e * least - most * one;
  return more > 0n ? (more * WORD) / (picked * one + more) : 0n;
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
