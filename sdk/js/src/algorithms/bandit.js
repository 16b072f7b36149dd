// @ts-check
/** Bandits without context: shares of arms, the same for everybody. */

import { findTrue } from "../arrays.js";
import { requireKnown } from "../errors.js";
import { GroupedBit } from "../mechanisms/index.js";
import { CoinPolicy } from "./policy.js";

export class BanditPolicy extends CoinPolicy {
  /** @type {import("../trust.js").Question} */
  static QUESTION = "names";
  static ARMS = ["grouped"];

  /** @param {any} decoded the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(decoded, spec) {
    super(decoded, spec);
    const isGrouped = decoded.terms.mechanism.type === GroupedBit.TYPE;
    this.checkCoins(decoded, spec, 1, this.cells.length);
    requireKnown(this.cells.every((arm) => spec.playable[arm]) && (isGrouped === spec.groupsArms || decoded.terms.batch_size === 0));
  }

  /** The arms that anybody gets: where the arm is in the key, these are the keys. */
  get cells() {
    return findTrue(this.layout.shares(0));
  }

  /** @param {number[]} _columns @param {number} slot @returns {number} an arm */
  decide(_columns, slot) {
    return this.coins(slot, 0);
  }

  /** What a person contributes. @param {number[]} _columns @param {number} arm @param {number[]} values as `read` gave them */
  contribute(_columns, arm, values) {
    return { key: this.freshCoins ? this.cells.indexOf(arm) : 0, value: values[0] };
  }
}
