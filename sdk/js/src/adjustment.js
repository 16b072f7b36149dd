// @ts-check
/** Numbers from before the choice, with which a device adjusts a reward so that it varies less. */

import { invalid, requireKnown } from "./errors.js";
import { unscaleReward } from "./features.js";
import { isObject } from "./inputs.js";
import { clipNumber, isWithin } from "./numbers.js";

const ADJUSTMENTS_MAX = 3;

/** The steepest slope that a policy may tell, in ranges of the reward for a range of the number. */
const SLOPE_MAX = 1.5;

/** A number with a slope that is declared, or with bounds: then policies tell its slope.
 * @typedef {{mean?: number, slope?: number, low?: number, high?: number}} Adjustment */

/** What a policy tells of a number, both on the scale from 0 to 1. @typedef {{slope: number, mean: number}} Learned */

/** @param {Adjustment} one */
const isDeclared = ({ mean, slope, low, high }) => Number.isFinite(mean) && Number.isFinite(slope) && low === undefined && high === undefined;

/** @param {Adjustment} one */
const isLearned = ({ mean, slope, low, high }) =>
  mean === undefined && slope === undefined && Number.isFinite(low) && Number.isFinite(high) && Number(low) < Number(high);

/** `[reward.covariates]` of a spec. @param {Record<string, any>} tables @returns {Map<string, Adjustment>} */
export function adjustments(tables) {
  const all = Object.entries(tables);
  const good = all.length <= ADJUSTMENTS_MAX && all.every(([, adjustment]) => adjustment && (isDeclared(adjustment) || isLearned(adjustment)));
  requireKnown(good, "reward.covariates");
  return new Map(all);
}

/** Names of what a device asks for. @param {import("./spec.js").Spec} spec */
export const listInputNames = ({ features, adjust }) => [...new Set([...features.keys(), ...adjust.keys()])];

/** A person's values without the numbers that adjust the reward alone. @param {import("./spec.js").Spec} spec @param {Record<string, any>} values */
export function selectFeatures({ adjust, features }, values) {
  if (!adjust.size || !isObject(values)) return values;
  for (const name of adjust.keys()) {
    if (!Object.hasOwn(values, name)) throw invalid("missing: give it from before the choice, or null", name);
  }
  return Object.fromEntries(Object.entries(values).filter(([name]) => features.has(name) || !adjust.has(name)));
}

/** How many numbers have slopes that policies tell. @param {Map<string, Adjustment>} adjust */
export const selectLearned = (adjust) => [...adjust.values()].filter(isLearned).length;

/** A person's numbers whose slopes policies tell, on the scale from 0 to 1; the middle where one is not known.
 * @param {import("./spec.js").Spec} spec @param {Record<string, any>} values @returns {number[]} */
export function encodeNumbers({ adjust }, values) {
  return [...adjust].flatMap(([name, adjustment]) => {
    if (!isLearned(adjustment)) return [];
    const value = values[name];
    const [low, high] = [Number(adjustment.low), Number(adjustment.high)];
    const place = typeof value === "number" ? (value - low) / (high - low) : NaN;
    return [Number.isNaN(place) ? 0.5 : clipNumber(place, 0, 1)];
  });
}

/** Whether a policy tells slopes as a learner makes them, and no more than the spec leaves open.
 * @param {any} slopes @param {number} count @returns {slopes is Learned[]} */
export const areSlopes = (slopes, count) =>
  Array.isArray(slopes) &&
  slopes.length <= count &&
  slopes.every((slope) => isWithin(slope?.slope, -SLOPE_MAX, SLOPE_MAX) && isWithin(slope.mean, 0, 1));

/** A value in [0, 1] less what numbers lead one to expect, within [0, 1]. @param {number} value @param {number[]} numbers @param {Learned[]} learned */
export function subtractExpected(value, numbers, learned) {
  if (!learned.length) return value;
  const above = learned.reduce((sum, { slope, mean }, place) => sum + slope * (numbers[place] - mean), 0);
  return clipNumber(value - above, 0, 1);
}

/** By how much a person's reward is expected to be above the average, where slopes are declared; what is no number counts as not known.
 * @param {import("./spec.js").Spec} spec @param {Record<string, any>} values */
export function computeOffset({ adjust, reward }, values) {
  // Twice the span moves any reward to its bound; what is beyond could be infinite.
  const limit = 2 * (reward.high - reward.low);
  return [...adjust].reduce((sum, [name, { mean, slope }]) => {
    const value = values[name];
    const above = typeof value === "number" && slope !== undefined && mean !== undefined ? slope * (value - mean) : 0;
    return sum + (Number.isNaN(above) ? 0 : clipNumber(above, -limit, limit));
  }, 0);
}

/** An outcome as it is reported: the reward within its bounds, less what was expected. @param {any} outcome
 * @param {import("./spec.js").Spec} spec @param {number} offset @returns {any} */
export function adjustOutcome(outcome, spec, offset) {
  const bounds = spec.reward;
  if (!offset) return outcome;
  if (isObject(outcome)) return { ...outcome, reward: adjustOutcome(outcome.reward, spec, offset) };
  return clipNumber(unscaleReward(bounds, outcome), bounds.low, bounds.high) - offset;
}

/** What is no number, in words that name it and carry no value. @param {import("./spec.js").Spec} spec @param {Record<string, any>} values */
export const listUnfitNumbers = ({ adjust }, values) =>
  [...adjust.keys()].flatMap((name) =>
    values[name] === null || values[name] === undefined || typeof values[name] === "number" ? [] : [`${name}: should be a number; it counts as missing`],
  );
