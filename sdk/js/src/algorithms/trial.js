// @ts-check
/** A trial: arms against a control, by segments of people. */

import { list } from "../arrays.js";
import { SlotLayout } from "../coins.js";
import { malformed, refused } from "../errors.js";
import { scaledReward } from "../features.js";
import { NamedSymbol } from "../mechanisms/named-symbol.js";

/** One feature that parts people. */
class Factor {
  /** @param {any} told */
  constructor(told) {
    this.column = told.column;
    this.columns = told.columns;
    this.flagged = told.flagged;
    this.codes = list(told.codes, "<i8");
    this.cuts = list(told.cuts, "<f8");
    this.parts = this.codes.length || this.cuts.length + 1 + (this.flagged ? 1 : 0);
  }

  /** @param {number[]} columns */
  locate(columns) {
    const own = columns.slice(this.column, this.column + this.columns);
    if (this.codes.length) {
      const code = own.reduce((sum, bit) => 2 * sum + Math.trunc(bit), 0);
      return Math.min(this.codes.filter((one) => one < code).length, this.codes.length - 1);
    }
    if (this.flagged && own[1] > 0) return this.parts - 1;
    return this.cuts.filter((cut) => cut <= own[0]).length;
  }
}

export class TrialPolicy {
  static MECHANISMS = [NamedSymbol];
  static ARM_IN_KEY = [NamedSymbol];

  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    if (!Array.isArray(told.segments?.factors)) throw malformed("not a trial policy");
    if ((told.questions ?? 1) !== 1) throw refused("this client does not report by turns", "questions");
    this.version = told.version;
    this.cohort = "";
    this.factors = /** @type {Factor[]} */ (told.segments.factors.map((/** @type {any} */ one) => new Factor(one)));
    this.layout = SlotLayout.read(told.choice);
    this.reported = SlotLayout.read(told.terms.mechanism.layout);
    this.freshCoins = this.reported.groups === 1;
    this.batched = told.terms.model === "shuffle";
    this.guardrails = spec.guardrails;
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

  /** @param {import("../spec.js").Spec} spec @param {number} batch */
  check(spec, batch) {
    const { layout, reported, factors } = this;
    const segments = factors.reduce((product, one) => product * one.parts, 1);
    const inside = factors.every((one) => one.column >= 0 && one.column + one.columns <= spec.columns);
    const chooses = layout.keys === segments && layout.groups === spec.arms.length && layout.rises;
    const played = layout.thresholds.every((_, key) => layout.shares(key).every((share, arm) => share === 0 || spec.playable[arm]));
    if (!(inside && chooses && played)) throw malformed("not a trial policy");
    const answers = 2 ** this.guardrails.length;
    const keys = segments * answers * (this.freshCoins ? spec.arms.length : 1);
    const rows = (/** @type {number} */ key) => (this.freshCoins ? [] : layout.thresholds[Math.floor(key / answers)]);
    const same = reported.keys === keys && reported.thresholds.every((row, key) => row.join() === rows(key).join());
    if (batch > 0 && !(same && reported.seed === layout.seed && this.freshCoins === spec.armInKey)) {
      throw malformed("not a trial policy");
    }
  }

  /** The segment of a context. @param {number[]} columns */
  locate(columns) {
    return this.factors.reduce((found, one) => found * one.parts + one.locate(columns), 0);
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const segment = this.locate(columns);
    return this.layout.group(this.layout.hash(slot, segment), segment);
  }

  /**
   * What a person tells: what is not given, or does not fit, counts as no outcome, and as no.
   * @param {number[]} columns @param {number} arm @param {any} told @param {import("../spec.js").Spec} spec
   */
  contribute(columns, arm, told, spec) {
    const all = told !== null && typeof told === "object" ? told : { reward: told };
    const answer = this.guardrails.reduce((sum, name, i) => sum + (Number(all[name] ?? 0) >= 0.5 ? 2 ** i : 0), 0);
    const segment = this.locate(columns);
    const cell = this.freshCoins ? segment * this.layout.groups + arm : segment;
    return { key: cell * 2 ** this.guardrails.length + answer, value: scaledReward(spec.reward, all.reward) };
  }
}
