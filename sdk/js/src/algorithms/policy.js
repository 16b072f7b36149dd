// @ts-check
/** What policies have in common. */

import { list } from "../arrays.js";
import { Layout } from "../coins.js";
import { sound } from "../errors.js";
import { scaledReward } from "../features.js";

/** Arms that people may get, as the policy says and the spec. @param {any} told @param {import("../spec.js").Spec} spec */
export function playableOf(told, spec) {
  const playable = list(told.playable, "|b1");
  sound(`${playable}` === `${spec.playable.map(Number)}`);
  return playable;
}

export class Policy {
  /** What a round asks. @type {import("../trust.js").Question} */
  static QUESTION;
  /** What else than "seen" and "hidden" its promise may say of arms where they are hidden. @type {string[]} */
  static ARMS = ["as-local"];

  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    this.version = /** @type {number} */ (told.version);
    this.cohort = /** @type {string} */ (told.cohort ?? "");
    this.batched = spec.trust.batched;
    /** Whether a report has coins of its own. */
    this.freshCoins = true;
  }

  /** Whether a report says how many versions ago its decision was made. */
  get tellsAge() {
    return !this.freshCoins && !this.batched && this.cohort === "";
  }

  /** Whether the round takes reports on decisions of this round alone. */
  get takesOwnAlone() {
    return this.batched && !this.freshCoins;
  }

  /** What an application tells, in [0, 1]. @param {any} told @param {import("../spec.js").Spec} spec @returns {number[]} */
  read(told, spec) {
    return [scaledReward(spec.reward, told)];
  }
}

/** A policy in which coins give the arms, by key. */
export class CoinPolicy extends Policy {
  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    super(told, spec);
    this.reported = Layout.read(told.terms.mechanism.layout);
    this.freshCoins = (told.choice ?? null) !== null;
    this.layout = this.freshCoins ? Layout.read(told.choice) : this.reported;
  }

  /** Refuse coins of other arms, and a report about other keys. @param {any} told @param {import("../spec.js").Spec} spec
   * @param {number} keys in which coins choose @param {number} cells that are keys where the arm is in the key */
  checkCoins(told, spec, keys, cells) {
    const { layout, reported, freshCoins } = this;
    const groups = spec.arms.length;
    sound(layout.keys === keys && layout.groups === groups && layout.rises);
    const [asked, parts] = freshCoins ? [cells, 1] : [keys, groups];
    sound((freshCoins === spec.armInKey && reported.keys === asked && reported.groups === parts) || told.terms.batch === 0);
  }

  /** The arm that coins give at a key. @param {number} slot @param {number} key */
  drawn(slot, key) {
    return this.layout.group(this.layout.hash(slot, key), key);
  }
}
