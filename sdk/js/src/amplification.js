// @ts-check
/** What a shuffled batch of randomized responses costs a person: the privacy-blanket bound (docs/foreign-clients/terms.md). */

export const TAIL = 1e-20;
export const ROUNDING = 1 + 1e-5;
/** A local epsilon nearer to epsilon is rounded up: ROUNDING would not cover their difference. */
export const RATIO_MIN = 1 + 1e-7;
const [NODES, NODES_MIN, CELLS] = [96, 16, 40_000];

/**
 * An upper bound of delta at epsilon, for a batch of which `honest` reports are randomized responses.
 * @param {number} epsilon @param {number} local pure epsilon of a report @param {number} symbols @param {number} honest
 */
export function shuffledDelta(epsilon, local, symbols, honest) {
  if (local <= epsilon) return 4 * TAIL;
  local = Math.max(local, epsilon * RATIO_MIN);
  const weight = 1 / (Math.exp(local) + symbols - 1);
  const pairs = computeMasses(honest, 2 * weight);
  const rest = moveToNodes(pairs.map(([pair]) => honest - pair), ((symbols - 2) * weight) / (1 - 2 * weight));
  const slope = Math.expm1(local) * (1 + Math.exp(epsilon));
  let sum = 0;
  pairs.forEach(([pair, mass], i) => {
    const limits = rest.map(({ node }) => (Math.expm1(epsilon + local) * pair + Math.expm1(epsilon) * node) / slope);
    sum += computeExcesses(pair, limits).reduce((part, excess, j) => part + mass * rest[j].masses[i] * excess, 0);
  });
  return Math.min(1, (4 * symbols * TAIL + (slope * sum) / honest) * ROUNDING);
}

/** E[(A - limit)_+] for A ~ Bin(pairs, 1/2). @param {number} pairs @param {number[]} limits rising */
function computeExcesses(pairs, limits) {
  const [first, last] = [Math.floor(limits[0]) + 1, Math.floor(limits[limits.length - 1]) + 1];
  const tail = computeTails(pairs, first, last);
  return limits.map((limit) => {
    const least = Math.floor(limit) + 1;
    // Both terms are positive, so that nothing cancels.
    const [reached, beyond] = (least <= pairs && tail[least - first]) || [0, 0];
    return beyond + (least - limit) * reached;
  });
}

/**
 * P(A >= a) and E[(A - a)_+] for A ~ Bin(trials, 1/2), for a from `first` to `last`.
 * @param {number} trials @param {number} first @param {number} last @returns {[number, number][]}
 */
function computeTails(trials, first, last) {
  if (first > trials) return [];
  const masses = [Math.exp(logChoose(trials, first) - trials * Math.LN2)];
  // These are upper tails: masses fall ever faster, until what is left is nothing beside the last that is asked for.
  for (let a = first; a < trials; a++) {
    masses.push((masses[a - first] * (trials - a)) / (a + 1));
    if (a + 1 >= last && masses[a + 1 - first] <= 1e-18 * masses[last - first]) break;
  }
  /** @type {[number, number][]} */
  const bounds = new Array(masses.length);
  let [reached, beyond] = [0, 0];
  for (let i = masses.length - 1; i >= 0; i--) {
    beyond += reached;
    reached += masses[i];
    bounds[i] = [reached, beyond];
  }
  return bounds;
}

/** First and last number of a range outside which a binomial has TAIL on either side (Bernstein).
 * @param {number} trials @param {number} p @returns {[number, number]} */
function findRange(trials, p) {
  const log = -Math.log(TAIL);
  const width = log / 3 + Math.sqrt((log * log) / 9 + 2 * trials * p * (1 - p) * log);
  return [Math.max(0, Math.floor(trials * p - width)), Math.min(trials, Math.ceil(trials * p + width) + 1)];
}

/** Points of a binomial without its tails, and their masses. @param {number} trials @param {number} p */
export function computeMasses(trials, p) {
  const [low, high] = findRange(trials, p);
  const logs = [Math.log(p), Math.log1p(-p)];
  /** @type {[number, number][]} */
  const bounds = [];
  for (let k = low; k <= high; k++) bounds.push([k, Math.exp(logChoose(trials, k) + times(k, logs[0]) + times(trials - k, logs[1]))]);
  return bounds;
}

/** 0 times infinity is 0 here. @param {number} count @param {number} log */
const times = (count, log) => (count === 0 ? 0 : count * log);

/**
 * Binomials of falling trials, each moved to common nodes so that its mean stays: nodes, and a mass for each binomial.
 * @param {number[]} trials @param {number} p
 */
function moveToNodes(trials, p) {
  if (p === 0) return [{ node: 0, masses: trials.map(() => 1) }];
  const low = findRange(trials[trials.length - 1], p)[0];
  const reach = findRange(trials[0], p)[1] - low;
  const most = Math.min(NODES, Math.max(NODES_MIN, Math.floor(CELLS / trials.length)));
  const gap = Math.max(1, Math.ceil(reach / most));
  const count = Math.ceil(reach / gap) + 1;
  const nodes = Array.from({ length: count }, (_, i) => ({ node: low + gap * i, masses: trials.map(() => 0) }));
  // The binomial of a block's fewest trials serves the others, whose extra successes one more chord moves.
  for (let start = 0; start < trials.length; start += gap + 1) {
    const block = trials.slice(start, start + gap + 1);
    const fewest = block[block.length - 1];
    const at = nodes.map(() => 0);
    for (const [point, mass] of computeMasses(fewest, p)) {
      const below = Math.min(Math.floor((point - low) / gap), count - 2);
      const upper = mass * ((point - low) / gap - below);
      at[below] += mass - upper;
      at[below + 1] += upper;
    }
    block.forEach((n, i) => at.forEach((mass, j) => {
      const moved = j + 1 < count ? (mass * (n - fewest) * p) / gap : 0;
      nodes[j].masses[start + i] += mass - moved;
      if (j + 1 < count) nodes[j + 1].masses[start + i] += moved;
    }));
  }
  return nodes;
}

/** @param {number} n @param {number} k */
const logChoose = (n, k) => logFactorial(n) - logFactorial(k) - logFactorial(n - k);

const SMALL = [0];
for (let n = 1; n < 256; n++) SMALL.push(SMALL[n - 1] + Math.log(n));

/** Stirling's series, whose next term is below 1e-18 from 256 on. @param {number} n */
function logFactorial(n) {
  if (n < SMALL.length) return SMALL[n];
  const r = 1 / n;
  return (n + 0.5) * Math.log(n) - n + 0.5 * Math.log(2 * Math.PI) + r / 12 - r ** 3 / 360 + r ** 5 / 1260;
}
