// @ts-check
/** Bandits without context: shares of arms, the same for everybody. */

import { Layout } from "../coins.js";
import { malformed } from "../errors.js";
import { scaledReward } from "../features.js";
import { NamedSymbol } from "../mechanisms/named-symbol.js";
import { SignedSymbol } from "../mechanisms/signed-symbol.js";

export class BanditPolicy {
  static MECHANISMS = [SignedSymbol];
  /** Where batches are shuffled and the arm is in the key, a symbol may name it. */
  static ARM_IN_KEY = [SignedSymbol, NamedSymbol];

  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    this.version = told.version;
    this.cohort = "";
    this.reported = Layout.read(told.terms.mechanism.layout);
    this.freshCoins = (told.choice ?? null) !== null;
    this.layout = this.freshCoins ? Layout.read(told.choice) : this.reported;
    this.batched = told.terms.model === "shuffle";
    this.check(spec, told.terms.batch);
  }

  /** Whether a report says how many versions ago its decision was made. */
  get tellsAge() {
    return !this.freshCoins && !this.batched;
  }

  /** Whether the round takes reports on decisions of this round alone. */
  get takesOwnAlone() {
    return this.batched && !this.freshCoins;
  }

  /** The arms that anybody gets: where the arm is in the key, these are the keys. */
  get cells() {
    return this.layout.shares(0).flatMap((share, arm) => (share > 0 ? [arm] : []));
  }

  /** @param {import("../spec.js").Spec} spec @param {number} batch */
  check(spec, batch) {
    const { layout } = this;
    const chooses = layout.keys === 1 && layout.groups === spec.arms.length && layout.rises;
    if (!chooses || this.cells.some((arm) => !spec.playable[arm])) throw malformed("not a policy of this algorithm");
    const [keys, groups] = this.freshCoins ? [this.cells.length, 1] : [1, spec.arms.length];
    const asked = this.freshCoins === spec.armInKey && this.reported.keys === keys && this.reported.groups === groups;
    if (!asked && batch > 0) throw malformed("not a policy of this algorithm");
  }

  /** @param {number[]} _columns @param {number} slot @returns {number} an arm */
  decide(_columns, slot) {
    return this.layout.group(this.layout.hash(slot, 0), 0);
  }

  /** What a person tells. @param {number[]} _columns @param {number} arm @param {any} told @param {import("../spec.js").Spec} spec */
  contribute(_columns, arm, told, spec) {
    return { key: this.freshCoins ? this.cells.indexOf(arm) : 0, value: scaledReward(spec.reward, told) };
  }
}
