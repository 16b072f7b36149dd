// @ts-check
/** The arm that a person saw last, and the coins of their next choice, kept as long as the experiment lasts. */

import { coins } from "../platform.js";

/**
 * What stays on the device beside a choice: it has neither a context nor an outcome, nor coins that a report tells.
 * @typedef {object} KeptArm
 * @property {number | null} coins of the next choice; null: none are drawn
 * @property {boolean} used whether they have shown an arm of which no report is made
 * @property {number | null} arm that was shown; null: none was
 * @property {string} meaning of the choice, as it has it
 * @property {number} period of the choice
 */

/** @typedef {import("../participation.js").Participation} Participation */
/** @typedef {import("../participation.js").Choice} Choice */

/** @returns {KeptArm} */
const nothing = () => ({ coins: null, used: false, arm: null, meaning: "", period: 0 });

/** It with coins for the next choice by a publication, of which a report may be made. @param {KeptArm | null} kept
 * @param {Participation} followed @returns {KeptArm} */
export function offered(kept, { isOver }) {
  const isBurnt = kept?.used && !isOver;
  return kept && kept.coins !== null && !isBurnt ? kept : { ...(kept ?? nothing()), coins: coins(), used: false };
}

/** The arm of a choice, whose coins are left to its report; once the experiment is over, the coins alone.
 * @param {KeptArm | null} kept @param {Choice} choice @param {boolean} isOver @returns {KeptArm} */
export function showing(kept, { slot, arm, meaning, period }, isOver) {
  if (isOver) return { ...(kept ?? nothing()), coins: slot, used: true };
  return { coins: null, used: false, arm, meaning, period };
}
