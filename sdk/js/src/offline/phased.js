// @ts-check
/** Phased elimination, for deciding alone: a phase plays the same actions for everybody. */

import { readList } from "../arrays.js";
import { requireKnown } from "../errors.js";

/** @param {number[]} rows */
const isRising = (rows) => rows.length > 0 && rows.every((row, i) => i === 0 || rows[i - 1] < row);

export class PhasedDecider {
  /** @param {any} decoded the policy as decoded @param {import("./spec.js").DeciderSpec} spec */
  constructor(decoded, spec) {
    this.version = decoded.version;
    this.cohort = "";
    this.active = readList(decoded.active, "<i8");
    this.support = readList(decoded.support, "<i8");
    this.plays = readList(decoded.plays, "<i8");
    this.check(spec.options.length);
  }

  /** @param {number} actions */
  check(actions) {
    const { active, support, plays } = this;
    const within = active.every((row) => row >= 0 && row < actions) && support.every((row) => active.includes(row));
    const played = plays.length === support.length && plays.every((times) => times >= 1);
    requireKnown(isRising(active) && isRising(support) && within && played);
  }

  /** How often each action is played, by its row. @returns {Record<string, number>} */
  show() {
    return Object.fromEntries(this.support.map((row, i) => [row, this.plays[i]]));
  }
}
