// @ts-check
/** Bandits without context: shares of arms, the same for everybody. */

import { Layout } from "../coins.js";
import { malformed } from "../errors.js";
import { scaledReward } from "../features.js";
import { GroupedBit } from "../mechanisms/index.js";

export class BanditPolicy {
  /** What a round asks. @type {import("../trust.js").Question} */
  static QUESTION = "names";
  /** What else than "seen" and "hidden" its promise may say of arms where they are hidden. @type {string[]} */
  static ARMS = ["grouped"];

  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    this.version = told.version;
    this.cohort = "";
    this.reported = Layout.read(told.terms.mechanism.layout);
    this.freshCoins = (told.choice ?? null) !== null;
    this.layout = this.freshCoins ? Layout.read(told.choice) : this.reported;
    this.batched = spec.trust.batched;
    this.grouped = told.terms.mechanism.type === GroupedBit.TYPE;
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
    const own = this.freshCoins === spec.armInKey && this.grouped === spec.groupsArms;
    const [keys, groups] = this.freshCoins ? [this.cells.length, 1] : [1, spec.arms.length];
    const asked = own && this.reported.keys === keys && this.reported.groups === groups;
    if (!asked && batch > 0) throw malformed("not a policy of this algorithm");
  }

  /** @param {number[]} _columns @param {number} slot @returns {number} an arm */
  decide(_columns, slot) {
    return this.layout.group(this.layout.hash(slot, 0), 0);
  }

  /** What an application tells, in [0, 1]. @param {any} told @param {import("../spec.js").Spec} spec */
  read(told, spec) {
    return [scaledReward(spec.reward, told)];
  }

  /** What a person contributes. @param {number[]} _columns @param {number} arm @param {number[]} values as `read` gave them */
  contribute(_columns, arm, values) {
    return { key: this.freshCoins ? this.cells.indexOf(arm) : 0, value: values[0] };
  }
}
