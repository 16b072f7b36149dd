// @ts-check
/** Numbers from before the choice, with which a device adjusts a reward so that it varies less. */

import { invalid, malformed } from "./errors.js";
import { rewardOf } from "./features.js";

const ADJUSTMENTS_MAX = 3;

/** @typedef {{mean: number, slope: number}} Adjustment */

/** `[reward.adjust]` of a spec. @param {Record<string, any>} tables @returns {Map<string, Adjustment>} */
export function adjustments(tables) {
  const known = Object.entries(tables);
  const good = known.length <= ADJUSTMENTS_MAX && known.every(([, one]) => Number.isFinite(one?.mean) && Number.isFinite(one?.slope));
  if (!good) throw malformed("not adjustments that this client knows");
  return new Map(known);
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

/** By how much a person's reward is expected to be above the average; what is no number counts as not known.
 * @param {import("./spec.js").Spec} spec @param {Record<string, any>} values */
export function offsetOf({ adjust, reward }, values) {
  // Twice the span moves any reward to its bound; what is beyond could be infinite.
  const most = 2 * (reward.high - reward.low);
  return [...adjust].reduce((sum, [name, { mean, slope }]) => {
    const value = values[name];
    const above = typeof value === "number" ? slope * (value - mean) : 0;
    return sum + (Number.isNaN(above) ? 0 : Math.min(Math.max(above, -most), most));
  }, 0);
}

/** An outcome as it is reported: the reward within its bounds, less what was expected. @param {any} told
 * @param {import("./spec.js").Spec} spec @param {number} offset @returns {any} */
export function adjusted(told, spec, offset) {
  const bounds = spec.reward;
  if (!offset) return told;
  if (told !== null && typeof told === "object") return { ...told, reward: adjusted(told.reward, spec, offset) };
  return Math.min(Math.max(rewardOf(bounds, told), bounds.low), bounds.high) - offset;
}

/** What is no number, in words that name it and carry no value. @param {import("./spec.js").Spec} spec @param {Record<string, any>} values */
export const unfitNumbers = ({ adjust }, values) =>
  [...adjust.keys()].flatMap((name) =>
    values[name] === null || values[name] === undefined || typeof values[name] === "number" ? [] : [`${name}: should be a number; it counts as missing`],
  );
