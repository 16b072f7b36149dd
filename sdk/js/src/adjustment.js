// @ts-check
/** Numbers from before the choice, with which a device adjusts a reward so that it varies less. */

import { invalid, sound } from "./errors.js";
import { rewardOf } from "./features.js";
import { clipped, isWithin } from "./numbers.js";

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

/** `[reward.adjust]` of a spec. @param {Record<string, any>} tables @returns {Map<string, Adjustment>} */
export function adjustments(tables) {
  const all = Object.entries(tables);
  const good = all.length <= ADJUSTMENTS_MAX && all.every(([, one]) => one && (isDeclared(one) || isLearned(one)));
  sound(good, "reward.adjust");
  return new Map(all);
}

/** Names of what a device asks for. @param {import("./spec.js").Spec} spec */
export const namesOf = ({ features, adjust }) => [...new Set([...features.keys(), ...adjust.keys()])];

/** A person's values without the numbers that adjust the reward alone. @param {import("./spec.js").Spec} spec @param {Record<string, any>} values */
export function featuresOf({ adjust, features }, values) {
  if (!adjust.size || values === null || typeof values !== "object") return values;
  for (const name of adjust.keys()) {
    if (!Object.hasOwn(values, name)) throw invalid("missing: give it with the context, from before the choice, or null", name);
  }
  return Object.fromEntries(Object.entries(values).filter(([name]) => features.has(name) || !adjust.has(name)));
}

/** How many numbers have slopes that policies tell. @param {Map<string, Adjustment>} adjust */
export const learnedOf = (adjust) => [...adjust.values()].filter(isLearned).length;

/** A person's numbers whose slopes policies tell, on the scale from 0 to 1; the middle where one is not known.
 * @param {import("./spec.js").Spec} spec @param {Record<string, any>} values @returns {number[]} */
export function numbersOf({ adjust }, values) {
  return [...adjust].flatMap(([name, one]) => {
    if (!isLearned(one)) return [];
    const value = values[name];
    const [low, high] = [Number(one.low), Number(one.high)];
    const place = typeof value === "number" ? (value - low) / (high - low) : NaN;
    return [Number.isNaN(place) ? 0.5 : clipped(place, 0, 1)];
  });
}

/** Whether a policy tells slopes as a learner makes them, and no more than the spec leaves open.
 * @param {any} told @param {number} most @returns {told is Learned[]} */
export const areSlopes = (told, most) =>
  Array.isArray(told) &&
  told.length <= most &&
  told.every((one) => isWithin(one?.slope, -SLOPE_MAX, SLOPE_MAX) && isWithin(one.mean, 0, 1));

/** A value in [0, 1] less what numbers lead one to expect, within [0, 1]. @param {number} value @param {number[]} numbers @param {Learned[]} learned */
export function lessExpected(value, numbers, learned) {
  if (!learned.length) return value;
  const above = learned.reduce((sum, { slope, mean }, place) => sum + slope * (numbers[place] - mean), 0);
  return clipped(value - above, 0, 1);
}

/** By how much a person's reward is expected to be above the average, where slopes are declared; what is no number counts as not known.
 * @param {import("./spec.js").Spec} spec @param {Record<string, any>} values */
export function offsetOf({ adjust, reward }, values) {
  // Twice the span moves any reward to its bound; what is beyond could be infinite.
  const most = 2 * (reward.high - reward.low);
  return [...adjust].reduce((sum, [name, { mean, slope }]) => {
    const value = values[name];
    const above = typeof value === "number" && slope !== undefined && mean !== undefined ? slope * (value - mean) : 0;
    return sum + (Number.isNaN(above) ? 0 : clipped(above, -most, most));
  }, 0);
}

/** An outcome as it is reported: the reward within its bounds, less what was expected. @param {any} told
 * @param {import("./spec.js").Spec} spec @param {number} offset @returns {any} */
export function adjusted(told, spec, offset) {
  const bounds = spec.reward;
  if (!offset) return told;
  if (told !== null && typeof told === "object") return { ...told, reward: adjusted(told.reward, spec, offset) };
  return clipped(rewardOf(bounds, told), bounds.low, bounds.high) - offset;
}

/** What is no number, in words that name it and carry no value. @param {import("./spec.js").Spec} spec @param {Record<string, any>} values */
export const unfitNumbers = ({ adjust }, values) =>
  [...adjust.keys()].flatMap((name) =>
    values[name] === null || values[name] === undefined || typeof values[name] === "number" ? [] : [`${name}: should be a number; it counts as missing`],
  );
