// @ts-check
/** What people are asked where no crowd hides a report: coins give some of them an arm, others get the best one. */

import { readList, findTrue, readTable } from "../../arrays.js";
import { UNIT, isRising } from "../../coins.js";
import { requireKnown } from "../../errors.js";
import { isWhole } from "../../numbers.js";

/** Epsilon of a report that stands alone from which on it names arms and cells. */
const ALONE = 4;
/** Coins, of `UNIT`, of people who say which cell they are in, and nothing else. */
const COUNTED = Math.floor(UNIT / 20);

/** Whether levels of arms are learned first, from people who get an arm by coins. @param {import("../../spec.js").Spec} spec */
export const startsFromLevels = (spec) => (spec.asAlone || spec.trust.crowd === "nobody") && spec.bound < ALONE;

/** People whom coins treat alike. `arm` is what they give, -1: the best one; `asked` is 0: about levels, or 1 + the feature.
 * @typedef {{arm: number, asked: number, counted: boolean}} Group */

export class CoinArms {
  /** @param {any} decoded as decoded @param {import("./cells.js").Questions} questions @param {number[]} playable */
  constructor(decoded, questions, playable) {
    this.questions = questions;
    this.arms = playable.length;
    this.given = /** @type {number} */ (decoded.given);
    this.resolutions = readList(decoded.resolutions, "<i8");
    const { rows } = readTable(decoded.edges, "<u4");
    const features = questions.features.length;
    const isSamePlan = `${readList(decoded.playable, "|b1")}` === `${playable}` && isWhole(this.given, 0, UNIT);
    const parted = rows.length === 2 && rows.every((row) => row.length === features && isRising(row));
    const names = this.resolutions.length === features && this.resolutions.every((question, i) => question > 0 && questions.asked[question - 1]?.place === i);
    requireKnown(isSamePlan && parted && names);
    /** @type {Group[]} */
    this.groups = [];
    /** Where each group ends among coins. @type {number[]} */
    this.ends = [];
    this.divide(findTrue(playable), rows);
  }

  /** Every arm has as many coins as another: the first give it to a person. @param {number[]} arms @param {number[][]} edges */
  divide(arms, edges) {
    const questionIndices = [...this.resolutions, 0].map((_, i) => i);
    const bound = (/** @type {number} */ place) => Math.floor((place * (UNIT - COUNTED)) / arms.length);
    arms.forEach((arm, place) => {
      const [start, end] = [bound(place), bound(place + 1)];
      const middle = start + Math.floor(((end - start) * this.given) / UNIT);
      for (const [own, row, low, high] of /** @type {const} */ ([[arm, edges[0], start, middle], [-1, edges[1], middle, end]])) {
        this.groups.push(...questionIndices.map((question) => ({ arm: own, asked: question, counted: false })));
        this.ends.push(...[...row, UNIT].map((edge) => low + Math.floor(((high - low) * edge) / UNIT)));
      }
    });
    const features = this.resolutions.length;
    this.groups.push(...questionIndices.slice(1).map((question) => ({ arm: -1, asked: question, counted: true })));
    this.ends.push(...questionIndices.slice(1).map((question) => UNIT - COUNTED + Math.floor((COUNTED * question) / features)));
  }

  /** What a person says. @param {Group} group that of their coins @param {Int32Array} terms @param {number} arm
   * @param {number} reward in [0, 1] @param {number} residual in [-1, 1] */
  contribution({ arm: forcedArm, asked: question, counted }, terms, arm, reward, residual) {
    const part = this.questions.part(question ? this.resolutions[question - 1] : 0, terms);
    const value = counted ? 1 : forcedArm >= 0 && question === 0 ? reward : (1 + residual) / 2;
    // An added arm moves all others: who had another arm than the coins name now has nothing to say.
    if (forcedArm >= 0 && forcedArm !== arm) return { key: -1, value };
    return { key: forcedArm < 0 && !counted ? part * this.arms + arm : part, value };
  }
}
