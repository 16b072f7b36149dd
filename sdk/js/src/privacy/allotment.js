// @ts-check
/** What each of a person's several reports may cost, so that all of them together keep one promise (docs/privacy/several-reports.md). */

import { refused } from "../errors.js";
import { findEpsilon, normalCurve, normalDeviation } from "./curves.js";
import { computeDelta, discretizeLoss, repeatLoss } from "./loss.js";

const POINTS = 64;
const SLACK = 0.05;
const BEYOND = 0.1;
/** Share of delta that the composition may use. Servers use a little less, so that other machines' digits have room. */
const BELOW = 1 - 5e-4;
const DIGITS = 4;
const CROWD_MAX = 200_000;
const TOLERANCE = 1e-6;

/** The most that a report may cost: at these epsilons so much delta. @typedef {{at: number, most: number}[]} Allotment */

/** @type {Map<string, Allotment>} */
const cachedEpsilons = new Map();

/**
 * Share a promise out to several reports: a public rule, computed anew.
 * @param {number} epsilon @param {number} delta @param {number} reports 2 at least @param {number} least slack @returns {Allotment}
 */
export function allotPromise(epsilon, delta, reports, least) {
  const name = [epsilon, delta, reports, least].join();
  const epsilonOf = cachedEpsilons.get(name) ?? sharePromise(epsilon, delta, reports, least);
  cachedEpsilons.set(name, epsilonOf);
  return epsilonOf;
}

/** @param {number} epsilon @param {number} delta @param {number} reports @param {number} least @returns {Allotment} */
function sharePromise(epsilon, delta, reports, least) {
  if (delta === 0) return [{ at: nextBelow(epsilon / reports), most: 0 }];
  const slack = Math.max((SLACK * delta) / reports, least);
  if (!(2 * reports * slack <= delta)) throw refused("too many reports of a person for the promise", "delta");
  const deviation = Math.sqrt(reports) * normalDeviation(epsilon, delta - reports * slack);
  const places = DIGITS - 1 - Math.floor(Math.log10(deviation));
  for (let units = Math.ceil(deviation * 10 ** places * (1 - 1e-9)); ; units++) {
    const grid = makeGrid(units / 10 ** places, slack);
    if (composeDelta(grid, reports, epsilon) <= BELOW * delta) return grid;
  }
}

/** The next smaller number, so that sums of shares are never above what was shared. @param {number} value */
function nextBelow(value) {
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, value);
  bits.setBigUint64(0, bits.getBigUint64(0) - 1n);
  return bits.getFloat64(0);
}

/** Normal noise, and a chance that anything goes. @param {number} deviation @param {number} slack @returns {Allotment} */
function makeGrid(deviation, slack) {
  const normal = normalCurve(deviation, 1);
  const end = findEpsilon(normal, BEYOND * slack);
  return Array.from({ length: POINTS + 1 }, (_, i) => {
    const at = (i * end) / POINTS;
    return { at, most: slack + (1 - slack) * normal(at) };
  });
}

/** Delta of so many reports, each within the grid. @param {Allotment} grid @param {number} reports @param {number} epsilon */
function composeDelta(grid, reports, epsilon) {
  const step = grid[1].at;
  const pair = discretizeLoss((at) => grid[Math.round(at / step)].most, step, POINTS);
  return computeDelta(repeatLoss(pair, reports), step, epsilon);
}

/**
 * Whether a report costs no more than the allotment.
 * @param {Allotment} allotment @param {(honest: number) => import("./curves.js").Curve} curve @param {number} honest
 * @param {number} sampling what the sampler of noise may add to delta
 */
export function covers(allotment, curve, honest, sampling) {
  // More people never harm, and devices have no time for millions.
  const curveOfOne = curve(Math.min(honest, CROWD_MAX));
  return allotment.every(({ at, most }) => curveOfOne(at) + sampling <= most * (1 + TOLERANCE));
}
