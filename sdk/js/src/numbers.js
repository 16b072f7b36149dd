// @ts-check
/** What kind of number a value is. */

/** @param {any} value @returns {value is number} */
export const isNumber = (value) => typeof value === "number" && !Number.isNaN(value);

/** @param {any} value @param {number} low @param {number} high @returns {value is number} */
export const isWithin = (value, low, high) => isNumber(value) && value >= low && value <= high;

/** Whether a value is above 0 and within a limit. @param {any} value @param {number} [high] @returns {value is number} */
export const isPositive = (value, high = Number.MAX_VALUE) => value > 0 && isWithin(value, 0, high);

/** @param {any} value @param {number} [low] @param {number} [high] @returns {value is number} */
export const isWhole = (value, low = -Infinity, high = Infinity) => Number.isSafeInteger(value) && isWithin(value, low, high);

/** @param {number} value @param {number} low @param {number} high */
export const clipNumber = (value, low, high) => Math.min(Math.max(value, low), high);
