// @ts-check
/** Numbers as whole numbers at random, whose means they are. */

/** True with the probability of a value in [0, 1]. @param {number} value @param {bigint} word */
export const isBelow = (value, word) => Number(word >> 11n) * 2 ** -53 < value;

/** The whole number below a value or the one above, whose mean it is. @param {number} value @param {bigint} word */
export function roundToInteger(value, word) {
  const low = Math.floor(value);
  return low + (isBelow(value - low, word) ? 1 : 0);
}
