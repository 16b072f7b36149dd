// @ts-check
/** What a bit in a public group of a shuffled batch costs: the worst of all crowds (docs/privacy/shuffling.md). */

import { RATIO_MIN, ROUNDING, TAIL, computeMasses } from "./amplification.js";

/** Relative distance from the delta of a crowd at which the search for the worst one stops. */
const TOLERANCE = 0.02;
/** The number of people in a group is rounded down to at least 2^5 sizes, if it varies that much. */
const SIZE_BITS = 5;
const NEAR = 1.5;

/**
 * An upper bound of delta at epsilon, of one bit among those of `honest` people of whom each is in the group with the chance `share`.
 * @param {number} epsilon @param {number} local pure epsilon of a report @param {number} honest @param {number} share
 */
export function groupedDelta(epsilon, local, honest, share) {
  if (local <= epsilon) return 8 * TAIL;
  const crowdDelta = createCrowdDelta(epsilon, Math.max(local, epsilon * RATIO_MIN));
  const sizes = share === 1 ? [[honest - 1, 1]] : roundDown(honest - 1, share);
  // About the result, without a search: it says what is small.
  const usual = sizes.reduce((sum, [size, mass]) => sum + mass * crowdDelta(size, 0), 0);
  const delta = sizes.reduce((sum, [size, mass]) =>
    sum + mass * findWorstDelta(crowdDelta, size, TOLERANCE * Math.max(usual, usual / (mass * sizes.length))), 0);
  return Math.min(1, (8 * TAIL + delta) * ROUNDING);
}

/** A few numbers to which a binomial is rounded down, and their masses. @param {number} trials @param {number} p */
function roundDown(trials, p) {
  const masses = computeMasses(trials, p);
  const [mean, deviation] = [trials * p, Math.sqrt(trials * p * (1 - p))];
  // Outside of these, numbers are rare. Larger ones also hide a person better.
  const low = Math.max(1, Math.floor(mean - 7 * deviation) - masses[0][0]);
  const high = Math.min(masses.length, Math.ceil(mean + 4 * deviation) - masses[0][0]);
  const starts = [0];
  for (let start = low; start < high; start += Math.max(1, (high - low) >> SIZE_BITS)) starts.push(start);
  return starts.map((start, i) => [masses[start][0], masses.slice(start, starts[i + 1]).reduce((sum, [, mass]) => sum + mass, 0)])
    .filter(([, mass]) => mass > 0);
}

/**
 * A bound of delta for all bits of so many others, above that of some by `slack` or a little: the interval of
 * numbers of bits 1 with the largest bound is halved until one number has almost that delta.
 * @param {(ones: number, zeros: number) => number} crowdDelta @param {number} others @param {number} slack
 */
function findWorstDelta(crowdDelta, others, slack) {
  let largest = crowdDelta(others, 0);
  const intervals = [[crowdDelta(0, 0), 0, others]];
  for (;;) {
    intervals.sort(([left], [right]) => left - right);
    const [bound, low, high] = /** @type {number[]} */ (intervals.pop());
    if (low === high || bound <= largest + Math.max(slack, TOLERANCE * largest)) return bound;
    const middle = (low + high) >> 1;
    if (bound < NEAR * largest) largest = Math.max(largest, crowdDelta(middle, others - middle));
    for (const [start, end] of [[low, middle], [middle + 1, high]]) intervals.push([crowdDelta(start, others - end), start, end]);
  }
}

/** Delta for so many others with bit 1 and bit 0, of which some are flipped. @param {number} epsilon @param {number} local */
function createCrowdDelta(epsilon, local) {
  const gap = Math.expm1(epsilon);
  const flip = 1 / (1 + Math.exp(local));
  const gain = -Math.expm1(epsilon - local) / (1 + Math.exp(-local));
  const loss = Math.expm1(epsilon + local) * flip;
  /** @type {Map<number, number[]>} */
  const flips = new Map();

  /** @param {number} trials */
  function findFlips(trials) {
    const masses = flips.get(trials) ?? computeMasses(trials, flip).map(([, mass]) => mass);
    flips.set(trials, masses);
    return masses;
  }

  return (/** @type {number} */ ones, /** @type {number} */ zeros) => {
    const [flipped, gained] = [ones, zeros].map(findFlips);
    const [rises, values] = [new Array(gained.length + 1), new Array(gained.length + 1)];
    let tail = 0;
    for (let i = gained.length; i >= 0; i--) {
      const [before, at] = [gained[i - 1] ?? 0, gained[i] ?? 0];
      tail += at;
      rises[i] = gain * before - loss * at;
      values[i] = gain * before - gap * tail;
    }
    // The first place at which the sum does not rise any more is the best.
    let [low, high] = [-flipped.length, gained.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sumProducts(flipped, rises, middle) >= 0) high = middle;
      else low = middle;
    }
    const above = flipped.slice(0, Math.max(0, -high)).reduce((sum, mass) => sum + mass, 0);
    return Math.max(0, sumProducts(flipped, values, high) - gap * above);
  };
}

/** The sum of left[i] right[i + shift] over all places that both have. @param {number[]} left @param {number[]} right @param {number} shift */
function sumProducts(left, right, shift) {
  let sum = 0;
  for (let i = Math.max(0, -shift); i < Math.min(left.length, right.length - shift); i++) sum += left[i] * right[i + shift];
  return sum;
}
