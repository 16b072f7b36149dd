// @ts-check
/** Bandits without context: shares of arms, the same for everybody. */

import { places } from "../arrays.js";
import { sound } from "../errors.js";
import { GroupedBit } from "../mechanisms/index.js";
import { CoinPolicy } from "./policy.js";

export class BanditPolicy extends CoinPolicy {
  /** @type {import("../trust.js").Question} */
  static QUESTION = "names";
  static ARMS = ["grouped"];

  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    super(told, spec);
    const isGrouped = told.terms.mechanism.type === GroupedBit.TYPE;
    this.checkCoins(told, spec, 1, this.cells.length);
    sound(this.cells.every((arm) => spec.playable[arm]) && (isGrouped === spec.groupsArms || told.terms.batch === 0));
  }

  /** The arms that anybody gets: where the arm is in the key, these are the keys. */
  get cells() {
    return places(this.layout.shares(0));
  }

  /** @param {number[]} _columns @param {number} slot @returns {number} an arm */
  decide(_columns, slot) {
    return this.drawn(slot, 0);
  }

  /** What a person contributes. @param {number[]} _columns @param {number} arm @param {number[]} values as `read` gave them */
  contribute(_columns, arm, values) {
    return { key: this.freshCoins ? this.cells.indexOf(arm) : 0, value: values[0] };
  }
}
