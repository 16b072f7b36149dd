// @ts-check
/** What becomes of a choice until the report on it is made. */

/** @typedef {import("./participation.js").Choice} Choice */

const DAY = 86_400;
const GRAINS = 100;

/** When a window ends that begins now, no finer than a hundredth of it. @param {number} window @param {number} now */
export function computeWindowEnd(window, now) {
  const grain = Math.max(1, window / GRAINS);
  return Math.ceil((now + window) / grain) * grain;
}

/** @param {number} now */
const roundToDay = (now) => Math.floor(now / DAY) * DAY;

/** @param {Choice} choice @param {number} now */
export const isDue = ({ due }, now) => due !== null && now >= due;

/** Whether a report that no round takes has waited for long enough: another window, and a day at least.
 * @param {Choice} choice @param {number} now */
export const isGivenUp = ({ due, window }, now) => due !== null && now >= due + (window ? Math.max(window, DAY) : 2 * DAY);

/** The choice as if it were made now, if a clock that was ahead has made it due later than that.
 * @param {Choice} choice @param {number} now @returns {Choice} */
export function withCorrectedDueTime(choice, now) {
  const latest = choice.window ? computeWindowEnd(choice.window, now) : roundToDay(now);
  return choice.due !== null && choice.due > latest ? { ...choice, due: latest } : choice;
}

/** The choice with another outcome; once the report is due, nothing changes it.
 * @param {Choice} choice @param {number[]} values @param {number} now @returns {Choice} */
export function withOutcome(choice, values, now) {
  if (isDue(choice, now)) return choice;
  // Without a window a report is due when its outcome is told: the day says enough.
  return { ...choice, values, due: choice.window ? choice.due : roundToDay(now) };
}

/** Whether two are the same choice, whatever came of it. @param {Choice} left @param {Choice} right */
export const isSameChoice = (left, right) =>
  left.slot === right.slot && left.digest === right.digest && `${left.columns}` === `${right.columns}`;

/** How many arms there were. @param {{meaning: string}} choice @returns {number} */
export const readArmCount = ({ meaning }) => JSON.parse(meaning)[3].length;

/** The name of the arm that was chosen, as its experiment had it then. @param {{meaning: string, arm: number | null}} choice @returns {string} */
export const readArm = ({ meaning, arm }) => JSON.parse(meaning)[3][arm ?? 0];
