// @ts-check
/** Values as an application has them: which are numbers, and which outcomes fit. */

import { isNumber } from "./numbers.js";

const EXACT = 2n ** 53n;

/** @param {any} value @returns {value is Record<string, any>} */
export const isObject = (value) => value !== null && typeof value === "object";

/** What a policy reads as a number if the value is one. @param {any} value @returns {any} */
export const toNumber = (value) => (typeof value === "bigint" && value >= -EXACT && value <= EXACT ? Number(value) : value);

/** The same of each value of an object. @template T @param {T} values @returns {T} */
export const toPlainValues = (values) => {
  if (!isObject(values) || Array.isArray(values)) return toNumber(values);
  return /** @type {T} */ (Object.fromEntries(Object.entries(values).map(([name, value]) => [name, toNumber(value)])));
};

/** @param {any} value */
const isOutcome = (value) => typeof value === "boolean" || isNumber(value);

/**
 * What is reported without an outcome, in words that name it and carry no value; empty where it fits.
 * @param {any} outcome @param {import("./spec.js").Spec} spec
 */
export function unfitOutcome(outcome, { guardrails }) {
  const isSeveral = guardrails.length > 0 && isObject(outcome);
  const names = ["reward", ...guardrails];
  const fits = isSeveral
    ? Object.keys(outcome).length === names.length && names.every((name) => isOutcome(outcome[name]))
    : isOutcome(outcome);
  return fits ? [] : ["reward: should be a number or boolean; it counts as no outcome"];
}
