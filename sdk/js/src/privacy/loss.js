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
export function lossOf(curve, step, points) {
  const epsilons = Array.from({ length: 2 * points + 1 }, (_, i) => (i - points) * step);
  const right = epsilons.slice(points).map((epsilon) => curve(epsilon));
  // Below 0 the other direction decides.
  const y = epsilons.map((epsilon, i) => (i < points ? 1 - Math.exp(epsilon) * (1 - right[points - i]) : right[i - points]));
  const x = epsilons.map(Math.exp);
  const kept = hull(x, y);
  const slopes = kept.slice(1).map((at, i) => (y[at] - y[kept[i]]) / (x[at] - x[kept[i]]));
  const edges = [-1, ...slopes, 0];
  const mass = new Float64Array(epsilons.length);
  kept.forEach((at, i) => (mass[at] = Math.max(edges[i + 1] - edges[i], 0) * x[at]));
  const infinite = Math.max(0, right[points]);
  mass[points] += Math.max(0, 1 - infinite - mass.reduce((sum, one) => sum + one, 0));
  return { first: -points, mass, infinite };
}

/** Places of the lower convex hull. @param {number[]} x rising @param {number[]} y */
function hull(x, y) {
  /** @type {number[]} */
  const kept = [];
  for (let i = 0; i < x.length; i++) {
    for (; kept.length > 1; kept.pop()) {
      const [a, b] = kept.slice(-2);
      if ((y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a])) break;
    }
    kept.push(i);
  }
  return kept;
}

/** Two independent losses, one after the other. @param {Loss} one @param {Loss} other @returns {Loss} */
function added(one, other) {
  const mass = new Float64Array(one.mass.length + other.mass.length - 1);
  one.mass.forEach((own, i) => {
    if (own) for (let j = 0; j < other.mass.length; j++) mass[i + j] += own * other.mass[j];
  });
  return trimmed({ first: one.first + other.first, mass, infinite: one.infinite + other.infinite });
}

/** Without ends of next to no mass: small losses count as larger ones, and large losses as infinite. @param {Loss} loss @returns {Loss} */
function trimmed({ first, mass, infinite }) {
  let [low, high, small, large] = [0, mass.length, 0, 0];
  while (low < high - 1 && small + mass[low] < NOTHING) small += mass[low++];
  while (high > low + 1 && large + mass[high - 1] < NOTHING) large += mass[--high];
  const kept = mass.slice(low, high);
  kept[0] += small;
  return { first: first + low, mass: kept, infinite: infinite + large };
}

/** The same loss so many times. @param {Loss} loss @param {number} count at least 1 @returns {Loss} */
export function repeated(loss, count) {
  if (count === 1) return loss;
  const twice = repeated(loss, Math.floor(count / 2));
  const even = added(twice, twice);
  return count % 2 ? added(even, loss) : even;
}

/** @param {Loss} loss @param {number} step @param {number} epsilon */
export function deltaOf({ first, mass, infinite }, step, epsilon) {
  let delta = infinite;
  mass.forEach((one, i) => {
    const loss = (first + i) * step;
    if (loss > epsilon) delta += one * -Math.expm1(epsilon - loss);
  });
  return Math.min(1, delta * ROUNDING);
}
