// @ts-check
/** What events cost: for each a curve, delta at an epsilon. All are upper bounds (docs/accounting.md). */

import { shuffledDelta } from "../amplification.js";
import { groupedDelta } from "../grouped-bits.js";
import { logNormal } from "../numerics.js";

/** @typedef {(epsilon: number) => number} Curve */

const ROUNDING = 1 + 1e-9;
const LAST_DIGITS = 2 ** -49;
/** Bounds of shuffled messages do not hold at 0. */
const LEAST = 1e-9;

/** What is pure: randomized response is the worst. @param {number} pure @returns {Curve} */
export const pureCurve = (pure) => (epsilon) =>
  epsilon >= pure ? 0 : Math.min(1, (ROUNDING * -Math.expm1(epsilon - pure)) / (1 + Math.exp(-pure)));

/** Normal noise, exactly (Balle and Wang 2018, Theorem 8). @param {number} deviation @param {number} sensitivity @returns {Curve} */
export const normalCurve = (deviation, sensitivity) => (epsilon) => {
  const [half, slope] = [sensitivity / (2 * deviation), (epsilon * deviation) / sensitivity];
  const [upper, lower] = [logNormal(half - slope), logNormal(-half - slope)];
  const rounding = LAST_DIGITS * (epsilon + Math.abs(lower) + Math.abs(upper));
  return Math.min(1, ROUNDING * Math.exp(upper) * -Math.expm1(Math.min(0, epsilon + lower - upper) - rounding));
};

/** One randomized response among shuffled ones, or one subset selection of that many symbols for each own one. @param {number} local @param {number} symbols @param {number} honest @returns {Curve} */
export const shuffledCurve = (local, symbols, honest) => exceedsLocal((epsilon) => shuffledDelta(epsilon, local, symbols, honest), local);

/** One bit in a public group of a shuffled batch. @param {number} local @param {number} honest
 * @param {number} share chance of others to be in the person's group @returns {Curve} */
export const groupedCurve = (local, honest, share) => exceedsLocal((epsilon) => groupedDelta(epsilon, local, honest, share), local);

/** A bound that holds above 0, at 0 as well. @param {Curve} bound @param {number} local @returns {Curve} */
const exceedsLocal = (bound, local) => (epsilon) =>
  Math.min(pureCurve(local)(epsilon), bound(Math.max(epsilon, LEAST)) + (epsilon < LEAST ? Math.expm1(LEAST) : 0));

/** Epsilon of a curve that falls, to a few digits, rounded up. @param {Curve} curve @param {number} delta */
export function findEpsilon(curve, delta) {
  if (curve(0) <= delta) return 0;
  let [low, high] = [0, 1];
  while (curve(high) > delta) [low, high] = [high, 2 * high];
  while (high - low > 1e-12 * Math.max(1, low)) {
    const middle = (low + high) / 2;
    if (middle === low || middle === high) break;
    [low, high] = curve(middle) <= delta ? [low, middle] : [middle, high];
  }
  return high;
}

/** The smallest standard deviation of normal noise of sensitivity 1 that keeps a promise. @param {number} epsilon @param {number} delta */
export function normalDeviation(epsilon, delta) {
  const keeps = (/** @type {number} */ deviation) => normalCurve(deviation, 1)(epsilon) <= delta;
  let [low, high] = [1e-3, 1];
  while (!keeps(high)) [low, high] = [high, 2 * high];
  while (keeps(low)) low /= 2;
  while (high - low > 1e-13 * high) {
    const middle = (low + high) / 2;
    [low, high] = keeps(middle) ? [low, middle] : [middle, high];
  }
  return high;
}
