// @ts-check
/** What a bit in a public group of a shuffled batch costs: the worst of all crowds (docs/privacy/shuffling.md). */

import { RATIO_MIN, ROUNDING, TAIL, computeMasses } from "./amplification.js";

/** Relative distance from the delta of a crowd at which the search for the worst one stops. */
const TOLERANCE = 0.005;
/** The same for each size of a group that varies. */
const GROUP_TOLERANCE = 0.05;
/** A size whose part is below this share of the usual one is not searched. */
const SMALL = 0.02;
/** The number of people in a group is rounded down to at least so many sizes, if it varies that much. */
const SIZES = 24;
const NEAR = 1.02;

/**
 * An upper bound of delta at epsilon, of one bit among those of `honest` people of whom each is in the group with the chance `share`.
 * @param {number} epsilon @param {number} local pure epsilon of a report @param {number} honest @param {number} share
 */
export function groupedDelta(epsilon, local, honest, share) {
  if (local <= epsilon) return 8 * TAIL;
  const crowdDelta = createCrowdDelta(epsilon, Math.max(local, epsilon * RATIO_MIN));
  const sizes = share === 1 ? [[honest - 1, 1]] : roundDown(honest - 1, share);
  const alike = sizes.map(([size]) => crowdDelta(size, 0));
  // About the part of a size in the result, without a search: it says what is small.
  const usual = sizes.reduce((sum, [, mass], i) => sum + mass * alike[i], 0) / sizes.length;
  const tolerance = share === 1 ? TOLERANCE : GROUP_TOLERANCE;
  let [delta, bound] = [0, 1];
  sizes.forEach(([size, mass], i) => {
    // The bound of a smaller size holds for a larger size, too.
    if (mass * bound > SMALL * usual) bound = findWorstDelta(crowdDelta, size, alike[i], tolerance * Math.max(alike[i], usual / mass));
    delta += mass * bound;
  });
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
  for (let start = low; start < high; start += Math.max(1, Math.floor((high - low) / SIZES))) starts.push(start);
  return starts.map((start, i) => [masses[start][0], masses.slice(start, starts[i + 1]).reduce((sum, [, mass]) => sum + mass, 0)])
    .filter(([, mass]) => mass > 0);
}

/**
 * A bound of delta for all bits of so many others, above that of some by about `slack` at most: the interval of
 * numbers of bits 1 with the largest bound is halved until one number has almost that delta.
 * @param {(ones: number, zeros: number) => number} crowdDelta @param {number} others @param {number} largest delta of a crowd
 * @param {number} slack
 */
function findWorstDelta(crowdDelta, others, largest, slack) {
  const intervals = [[crowdDelta(0, 0), 0, others]];
  for (;;) {
    intervals.sort(([left], [right]) => left - right);
    const [bound, low, high] = /** @type {number[]} */ (intervals.pop());
    if (low === high || bound <= largest + slack) return bound;
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
