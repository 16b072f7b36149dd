// @ts-check
/** The policy of a round that measures what choosing by context gains: the algorithm's policy, the best single option, or any. */

import { Policy, readPlayable } from "./algorithms/policy.js";
import { findTrue } from "./arrays.js";
import { Layout, UNIT, WORD, chooseClass, readSeed } from "./coins.js";
import { requireKnown } from "./errors.js";
import { isObject } from "./inputs.js";

/** Parts of 65,536 of the coins that follow the policy; as many give the single option, if there is one, and the rest any. */
const COMPARED = (7 * UNIT) / 16;
/** Keys of reports, and the single option where nobody knows which is best. */
const [BY_CONTEXT, SINGLE, EITHER, ANY, KEYS, NO_OPTION] = [0, 1, 2, 3, 4, -1];
/** What the same coins mean for the group, for any option, and for the key of a report. */
const [GROUPS, OPTIONS, NAMES] = [0x67726f757073n, 0x6f7074696f6e73n, 0x6b657973n];

/** Whether a policy, as decoded, is one of these. @param {any} decoded */
export const measuresGain = (decoded) => isObject(decoded) && "by_context" in decoded;

export class GainPolicy extends Policy {
  /** @param {any} decoded the policy as decoded @param {import("./spec.js").Spec} spec @param {any} Kind the algorithm's own policies */
  constructor(decoded, spec, Kind) {
    super(decoded, spec);
    this.single = decoded.single;
    this.seed = readSeed(decoded.seed);
    this.played = findTrue(readPlayable(decoded, spec));
    /** @type {import("./algorithms/index.js").Policy} */
    this.byContext = new Kind(decoded.by_context, spec);
    this.singles = this.single === NO_OPTION ? 0 : COMPARED;
    this.check(decoded, spec);
  }

  get takesOwnAlone() {
    return true;
  }

  /** @param {any} decoded @param {import("./spec.js").Spec} spec */
  check(decoded, spec) {
    const { batch_size: batchSize, mechanism } = decoded.terms;
    const nobody = decoded.by_context.terms.batch_size === 0 && this.byContext.version === this.version && this.byContext.cohort === "";
    const isKnownArm = this.single === NO_OPTION || this.played.includes(this.single);
    const isWithinPeople = batchSize > 0 && batchSize <= spec.gainPeople;
    const layout = Layout.read(mechanism.layout);
    const about = layout.keys === KEYS && layout.groups === 1;
    requireKnown(nobody && isKnownArm && isWithinPeople && about);
    this.asked = { keys: KEYS, expected: spec.reward.kind === "numeric" || spec.trust.noise !== "devices" ? spec.expectedReward : null, beside: false };
  }

  /** Whether a mechanism tells what the round asks. @param {any} mechanism */
  fits(mechanism) {
    return mechanism.fits(this.asked);
  }

  /** @param {number} slot @param {bigint} kind @param {number} classes */
  coins(slot, kind, classes) {
    return chooseClass(slot, (this.seed ^ kind) & WORD, classes);
  }

  /** What the policy gives: one that asks nobody has no use for coins. @param {number[]} columns */
  forcedArm(columns) {
    return this.byContext.decide(columns, 0);
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const group = this.coins(slot, GROUPS, UNIT);
    if (group < COMPARED) return this.forcedArm(columns);
    return group < COMPARED + this.singles ? this.single : this.played[this.coins(slot, OPTIONS, this.played.length)];
  }

  /** What an application tells, in [0, 1]. @param {any} decoded @param {import("./spec.js").Spec} spec */
  read(decoded, spec) {
    return this.byContext.read(decoded, spec);
  }

  /** The key of a report, drawn from the groups that give this person this arm. @param {number[]} columns @param {number} arm @param {number} fresh */
  key(columns, arm, fresh) {
    const forcedArm = this.forcedArm(columns);
    const count = this.played.length;
    const byContext = arm === forcedArm ? COMPARED * count : 0;
    const single = arm === this.single ? this.singles * count : 0;
    const place = this.coins(fresh, NAMES, UNIT) * (byContext + single + UNIT - COMPARED - this.singles);
    if (place >= UNIT * (byContext + single)) return ANY;
    if (forcedArm === this.single) return EITHER;
    return place < UNIT * byContext ? BY_CONTEXT : SINGLE;
  }

  /** What a person contributes. @param {number[]} columns @param {number} arm @param {number[]} values as `read` gave them
   * @param {number} _slot coins of the choice @param {number} fresh coins of the report */
  contribute(columns, arm, values, _slot, fresh) {
    return { key: this.key(columns, arm, fresh), value: values[0] };
  }
}
