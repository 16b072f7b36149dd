// @ts-check
/** Privacy losses on a grid, and how several add up: certified upper bounds of delta (docs/accounting.md). */

/** Masses of losses under P at whole multiples of a step, from `first` on, and the mass of infinite loss.
 * @typedef {{first: number, mass: Float64Array, infinite: number}} Loss */

const NOTHING = 1e-25;
/** Covers what floating point loses in sums of positive numbers. */
const ROUNDING = 1 + 1e-9;

/**
 * A pair that dominates everything whose delta is at most this one in both directions, on the grid of a step up to so
 * many points (Doroshenko et al., PoPETs 2022).
 * @param {import("./curves.js").Curve} curve @param {number} step @param {number} points @returns {Loss}
 */
export function discretizeLoss(curve, step, points) {
  const epsilons = Array.from({ length: 2 * points + 1 }, (_, i) => (i - points) * step);
  const right = epsilons.slice(points).map((epsilon) => curve(epsilon));
  // Below 0 the other direction decides.
  const y = epsilons.map((epsilon, i) => (i < points ? 1 - Math.exp(epsilon) * (1 - right[points - i]) : right[i - points]));
  const x = epsilons.map(Math.exp);
  const corners = findHull(x, y);
  const slopes = corners.slice(1).map((at, i) => (y[at] - y[corners[i]]) / (x[at] - x[corners[i]]));
  const edges = [-1, ...slopes, 0];
  const mass = new Float64Array(epsilons.length);
  corners.forEach((at, i) => (mass[at] = Math.max(edges[i + 1] - edges[i], 0) * x[at]));
  const infinite = Math.max(0, right[points]);
  mass[points] += Math.max(0, 1 - infinite - mass.reduce((sum, share) => sum + share, 0));
  return { first: -points, mass, infinite };
}

/** Places of the lower convex hull. @param {number[]} x rising @param {number[]} y */
function findHull(x, y) {
  /** @type {number[]} */
  const corners = [];
  for (let i = 0; i < x.length; i++) {
    for (; corners.length > 1; corners.pop()) {
      const [a, b] = corners.slice(-2);
      if ((y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a])) break;
    }
    corners.push(i);
  }
  return corners;
}

/** Two independent losses, one after the other. @param {Loss} left @param {Loss} right @returns {Loss} */
function addLosses(left, right) {
  const mass = new Float64Array(left.mass.length + right.mass.length - 1);
  left.mass.forEach((share, i) => {
    if (share) for (let j = 0; j < right.mass.length; j++) mass[i + j] += share * right.mass[j];
  });
  return trimLoss({ first: left.first + right.first, mass, infinite: left.infinite + right.infinite });
}

/** Without ends of next to no mass: small losses count as larger ones, and large losses as infinite. @param {Loss} loss @returns {Loss} */
function trimLoss({ first, mass, infinite }) {
  let [low, high, small, large] = [0, mass.length, 0, 0];
  while (low < high - 1 && small + mass[low] < NOTHING) small += mass[low++];
  while (high > low + 1 && large + mass[high - 1] < NOTHING) large += mass[--high];
  const middle = mass.slice(low, high);
  middle[0] += small;
  return { first: first + low, mass: middle, infinite: infinite + large };
}

/** The same loss so many times. @param {Loss} loss @param {number} count at least 1 @returns {Loss} */
export function repeatLoss(loss, count) {
  if (count === 1) return loss;
  const squared = repeatLoss(loss, Math.floor(count / 2));
  const even = addLosses(squared, squared);
  return count % 2 ? addLosses(even, loss) : even;
}

/** @param {Loss} loss @param {number} step @param {number} epsilon */
export function computeDelta({ first, mass, infinite }, step, epsilon) {
  let delta = infinite;
  mass.forEach((share, i) => {
    const loss = (first + i) * step;
    if (loss > epsilon) delta += share * -Math.expm1(epsilon - loss);
  });
  return Math.min(1, delta * ROUNDING);
}
