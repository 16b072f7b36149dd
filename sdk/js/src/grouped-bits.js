// @ts-check
/** What a bit in a public group of a shuffled batch costs: the worst of all crowds (docs/privacy/shuffling.md). */

import { RATIO_MIN, ROUNDING, TAIL, computeMasses } from "./amplification.js";

/** Relative distance from the delta of a crowd at which the search for the worst one stops. */
const TOLERANCE = 0.02;
/** The least sizes to which the number of people in a group is rounded down, if it varies that much. */
const SIZES = 32;
const NEAR = 1.5;

/**
 * An upper bound of delta at epsilon, of one bit among those of `honest` people of whom each is in the group with the chance `share`.
 * @param {number} epsilon @param {number} local pure epsilon of a report @param {number} honest @param {number} share
 */
export function groupedDelta(epsilon, local, honest, share) {
  if (local <= epsilon) return 8 * TAIL;
  const crowds = new Crowds(epsilon, Math.max(local, epsilon * RATIO_MIN));
  const sizes = share === 1 ? [{ size: honest - 1, mass: 1 }] : roundDown(honest - 1, share);
  // About the result, without a search: it says what is small.
  const usual = sizes.reduce((sum, { size, mass }) => sum + mass * crowds.delta(size, 0), 0);
  const delta = sizes.reduce((sum, { size, mass }) =>
    sum + mass * crowds.worstDelta(size, TOLERANCE * Math.max(usual, usual / (mass * sizes.length))), 0);
  return Math.min(1, (8 * TAIL + delta) * ROUNDING);
}

/** A few numbers to which a binomial is rounded down, and their masses. @param {number} trials @param {number} p */
function roundDown(trials, p) {
  const masses = computeMasses(trials, p);
  const [mean, deviation] = [trials * p, Math.sqrt(trials * p * (1 - p))];
  // Outside of these, numbers are rare. Larger ones also hide a person better.
  const low = Math.max(1, Math.floor(mean - 7 * deviation) - masses[0][0]);
  const high = Math.min(masses.length, Math.ceil(mean + 4 * deviation) - masses[0][0]);
  const gap = Math.max(1, Math.floor((high - low) / SIZES));
  const starts = [0];
  for (let start = low; start < high; start += gap) starts.push(start);
  const sizes = starts.map((start, i) => {
    const mass = masses.slice(start, starts[i + 1]).reduce((sum, [, each]) => sum + each, 0);
    return { size: masses[start][0], mass };
  });
  return sizes.filter(({ mass }) => mass > 0);
}

/** Deltas of one bit among others whose bits are given. */
class Crowds {
  /** @param {number} epsilon @param {number} local */
  constructor(epsilon, local) {
    this.gap = Math.expm1(epsilon);
    this.gain = -Math.expm1(epsilon - local) / (1 + Math.exp(-local));
    this.loss = Math.expm1(epsilon + local) / (1 + Math.exp(local));
    this.flip = 1 / (1 + Math.exp(local));
    /** @type {Map<number, number[]>} */
    this.flips = new Map();
  }

  /**
   * A bound of delta for all bits of so many others, above that of some by `slack` or a little: the interval of
   * numbers of bits 1 with the largest bound is halved until one number has almost that delta.
   * @param {number} others @param {number} slack
   */
  worstDelta(others, slack) {
    let largest = this.delta(others, 0);
    const intervals = [{ bound: this.gain, low: 0, high: others }];
    for (;;) {
      const next = intervals.reduce((best, { bound }, i) => (bound > intervals[best].bound ? i : best), 0);
      const [{ bound, low, high }] = intervals.splice(next, 1);
      if (low === high || bound <= largest + Math.max(slack, TOLERANCE * largest)) return bound;
      const middle = Math.floor((low + high) / 2);
      if (bound < NEAR * largest) largest = Math.max(largest, this.delta(middle, others - middle));
      for (const [start, end] of [[low, middle], [middle + 1, high]]) intervals.push({ bound: this.delta(start, others - end), low: start, high: end });
    }
  }

  /** Delta for so many others with bit 1 and bit 0, of which some are flipped. @param {number} ones @param {number} zeros */
  delta(ones, zeros) {
    const [flipped, gained] = [this.findFlips(ones), this.findFlips(zeros)];
    const count = gained.length;
    const [rises, values] = [new Array(count + 1), new Array(count + 1)];
    let tail = 0;
    for (let i = count; i >= 0; i--) {
      const [before, at] = [i > 0 ? gained[i - 1] : 0, i < count ? gained[i] : 0];
      tail += at;
      rises[i] = this.gain * before - this.loss * at;
      values[i] = this.gain * before - this.gap * tail;
    }
    // The first place at which the sum does not rise any more is the best.
    let [low, high] = [-flipped.length, count];
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (sumProducts(flipped, rises, middle) >= 0) high = middle;
      else low = middle;
    }
    let above = 0;
    for (let i = 0; i < -high; i++) above += flipped[i];
    return Math.max(0, sumProducts(flipped, values, high) - this.gap * above);
  }

  /** @param {number} trials */
  findFlips(trials) {
    const masses = this.flips.get(trials) ?? computeMasses(trials, this.flip).map(([, mass]) => mass);
    this.flips.set(trials, masses);
    return masses;
  }
}

/** The sum of left[i] right[i + shift] over all places that both have. @param {number[]} left @param {number[]} right @param {number} shift */
function sumProducts(left, right, shift) {
  let sum = 0;
  const end = Math.min(left.length, right.length - shift);
  for (let i = Math.max(0, -shift); i < end; i++) sum += left[i] * right[i + shift];
  return sum;
}
