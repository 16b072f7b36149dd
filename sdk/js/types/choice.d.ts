/** What becomes of a choice until the report on it is made. */
export type Choice = import("./participation.js").Choice;
/** @param {Choice} choice @param {number} now */
export declare const isDue: ({ due }: Choice, now: number) => boolean;
/** Whether a report that no round takes has waited for long enough: another window, and a day at least.
 * @param {Choice} choice @param {number} now */
export declare const isGivenUp: ({ due, window }: Choice, now: number) => boolean;
/** The choice with another outcome; once the report is due, nothing changes it.
 * @param {Choice} choice @param {number[]} values @param {number} now @returns {Choice} */
export declare function told(choice: Choice, values: number[], now: number): Choice;
/** Whether two are the same choice, whatever came of it. @param {Choice} one @param {Choice} other */
export declare const isSame: (one: Choice, other: Choice) => boolean;
/** How many arms there were. @param {Choice} choice @returns {number} */
export declare const countOf: ({ meaning }: Choice) => number;
/** The name of the arm that was chosen, as its experiment had it then. @param {Choice} choice @returns {string} */
export declare const armOf: ({ meaning, arm }: Choice) => string;
