// @ts-check
/** Phased elimination, for deciding alone: a phase plays the same actions for everybody. */

import { list } from "../arrays.js";
import { sound } from "../errors.js";

/** @param {number[]} rows */
const rise = (rows) => rows.length > 0 && rows.every((one, i) => i === 0 || rows[i - 1] < one);

export class PhasedDecider {
  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    this.version = told.version;
    this.cohort = "";
    this.active = list(told.active, "<i8");
    this.support = list(told.support, "<i8");
    this.plays = list(told.plays, "<i8");
    this.check(spec.options.length);
  }

  /** @param {number} actions */
  check(actions) {
    const { active, support, plays } = this;
    const within = active.every((row) => row >= 0 && row < actions) && support.every((row) => active.includes(row));
    const played = plays.length === support.length && plays.every((times) => times >= 1);
    sound(rise(active) && rise(support) && within && played);
  }

  /** How often each action is played, by its row. @returns {Record<string, number>} */
  show() {
    return Object.fromEntries(this.support.map((row, i) => [row, this.plays[i]]));
  }
}
