// @ts-check
/** What policies have in common. */

import { readList } from "../arrays.js";
import { Layout } from "../coins.js";
import { requireKnown } from "../errors.js";
import { scaleReward } from "../features.js";

/** Arms that people may get, as the policy says and the spec. @param {any} decoded @param {import("../spec.js").Spec} spec */
export function readPlayable(decoded, spec) {
  const playable = readList(decoded.playable, "|b1");
  requireKnown(`${playable}` === `${spec.playable.map(Number)}`);
  return playable;
}

export class Policy {
  /** What a round asks. @type {import("../trust.js").Question} */
  static QUESTION;
  /** What else than "visible" and "hidden" its promise may say of arms where they are hidden. @type {string[]} */
  static ARMS = ["as-local"];

  /** @param {any} decoded the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(decoded, spec) {
    this.version = /** @type {number} */ (decoded.version);
    this.cohort = /** @type {string} */ (decoded.cohort ?? "");
    this.batched = spec.trust.crowd === "batch";
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

  /** What an application tells, in [0, 1]. @param {any} decoded @param {import("../spec.js").Spec} spec @returns {number[]} */
  read(decoded, spec) {
    return [scaleReward(spec.reward, decoded)];
  }
}

/** A policy in which coins give the arms, by key. */
export class CoinPolicy extends Policy {
  /** @param {any} decoded the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(decoded, spec) {
    super(decoded, spec);
    this.reported = Layout.read(decoded.terms.mechanism.layout);
    this.freshCoins = (decoded.choice ?? null) !== null;
    this.layout = this.freshCoins ? Layout.read(decoded.choice) : this.reported;
  }

  /** Refuse coins of other arms, and a report about other keys. @param {any} decoded @param {import("../spec.js").Spec} spec
   * @param {number} keys in which coins choose @param {number} cells that are keys where the arm is in the key */
  checkCoins(decoded, spec, keys, cells) {
    const { layout, reported, freshCoins } = this;
    const groups = spec.arms.length;
    requireKnown(layout.keys === keys && layout.groups === groups && layout.rises);
    const [nKeys, parts] = freshCoins ? [cells, 1] : [keys, groups];
    requireKnown((freshCoins === spec.armInKey && reported.keys === nKeys && reported.groups === parts) || decoded.terms.batch_size === 0);
  }

  /** The arm that coins give at a key. @param {number} slot @param {number} key */
  coins(slot, key) {
    return this.layout.group(this.layout.hash(slot, key), key);
  }
}
