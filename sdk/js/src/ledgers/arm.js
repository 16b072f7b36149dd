// @ts-check
/** The arm that a person saw last, and coins for what they choose next, kept as long as the experiment lasts. */

import { coins } from "../platform.js";

/**
 * What stays on the device beside a choice: it has neither a context nor an outcome, nor coins that a report tells.
 * @typedef {object} KeptArm
 * @property {number | null} coins of the next choice; null: none are drawn
 * @property {number} final coins by which the final policy decides; no report tells them
 * @property {number | null} arm that was shown; null: none was
 * @property {string} meaning of the choice, as it has it
 * @property {number} period of the choice
 */

/** @typedef {import("../participation.js").Choice} Choice */

/** @returns {KeptArm} */
const emptyArm = () => ({ coins: null, final: coins(), arm: null, meaning: "", period: 0 });

/** It with coins for the next choice. @param {KeptArm | null} stored @returns {KeptArm} */
export const withOfferedCoins = (stored) => (stored && stored.coins !== null ? stored : { ...(stored ?? emptyArm()), coins: coins() });

/** The arm of a choice, whose coins are left to its report; once the experiment is over, the coins alone.
 * @param {KeptArm | null} stored @param {Choice} choice @param {boolean} isOver @returns {KeptArm} */
export function withChoice(stored, { slot, arm, meaning, period }, isOver) {
  const before = stored ?? emptyArm();
  return isOver ? { ...before, final: slot } : { ...before, coins: null, arm, meaning, period };
}
