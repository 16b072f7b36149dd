// @ts-check
/** A trial: arms against a control, by segments of people. */

import { areSlopes, learnedOf, lessExpected } from "../adjustment.js";
import { list } from "../arrays.js";
import { SlotLayout, UNIT } from "../coins.js";
import { sound } from "../errors.js";
import { scaledReward } from "../features.js";
import { isNumber, isWhole } from "../numbers.js";
import { Policy } from "./policy.js";

/** By how many units of coins rounding may move an arm in one question beside another. */
const UNITS = 2;

/** @typedef {{share: number, fact: number | null, everybody: boolean}} Question what coins may ask; see docs/foreign-clients/policies-trial.md */

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

export class TrialPolicy extends Policy {
  /** @type {import("../trust.js").Question} */
  static QUESTION = "hits";
  static ARMS = /** @type {string[]} */ ([]);

  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    super(told, spec);
    sound(Array.isArray(told.segments?.factors));
    this.factors = /** @type {Factor[]} */ (told.segments.factors.map((/** @type {any} */ one) => new Factor(one)));
    this.layout = SlotLayout.read(told.choice);
    this.reported = SlotLayout.read(told.terms.mechanism.layout);
    this.freshCoins = this.reported.groups === 1;
    this.guardrails = spec.guardrails;
    /** @type {Question[]} */
    this.questions = told.questions;
    /** @type {import("../adjustment.js").Learned[]} */
    this.learned = told.learned === undefined ? [] : told.learned;
    this.arms = spec.arms.length;
    this.segments = this.factors.reduce((product, one) => product * one.parts, 1);
    this.check(spec, told);
  }

  /** @param {import("../spec.js").Spec} spec @param {any} told */
  check(spec, told) {
    const { layout, reported, factors, questions, segments } = this;
    // A curator's record names the arm, too.
    const namesArms = spec.armInKey || spec.trust.curated;
    const inside = factors.every((one) => isWhole(one.column, 0) && isWhole(one.columns) && one.column + one.columns <= spec.columns);
    const whole = questions.some((one) => one.everybody) ? 1 : 0;
    const groups = this.arms * Math.max(1, questions.length);
    const chooses = layout.keys === segments + whole && layout.groups === groups && layout.rises;
    const gone = (/** @type {number} */ group) => !spec.playable[group % this.arms];
    const played = layout.thresholds.every((_, key) => layout.shares(key).every((share, group) => share === 0 || !gone(group)));
    const open = learnedOf(spec.adjust);
    sound(inside && chooses && played && this.asksEvenly() && areSlopes(this.learned, open));
    const answers = questions.length ? 1 : 2 ** this.guardrails.length;
    const keys = layout.keys * answers * (this.freshCoins ? this.arms : 1);
    const rows = (/** @type {number} */ key) => (this.freshCoins ? [] : layout.thresholds[Math.floor(key / answers)]);
    const same = reported.keys === keys && reported.thresholds.every((row, key) => row.join() === rows(key).join());
    const { kind, base_rate, low, high } = spec.reward;
    const expected = isNumber(base_rate) ? (base_rate - low) / (high - low) : spec.table.rate;
    this.asked = { keys, expected: kind === "numeric" ? expected : null, beside: this.learned.length < open };
    const asks = same && reported.seed === layout.seed && this.freshCoins === namesArms && (told.terms.mechanism.buckets ?? 1) <= keys;
    sound(asks || told.terms.batch === 0);
  }

  /** Whether a mechanism tells what the round asks. @param {any} mechanism */
  fits(mechanism) {
    return mechanism.fits(this.asked);
  }

  /** Whether each question has the same coins in every segment and all arms alike; about everybody, each arm the same. */
  asksEvenly() {
    const { layout, questions, arms } = this;
    const known = questions.every((one) => one.fact === null || isWhole(one.fact, 0, this.guardrails.length));
    let end = 0;
    const ends = questions.map((one) => Math.round((end += one.share) * UNIT));
    if (!known || (questions.length && (ends[ends.length - 1] !== UNIT || (this.freshCoins && questions.length)))) return false;
    return layout.thresholds.every((row) => {
      const edges = [0, ...row, UNIT];
      const first = (/** @type {number} */ arm) => edges[arm + 1] / ends[0];
      return questions.every((one, place) => {
        const start = place ? ends[place - 1] : 0;
        const own = edges.slice(place * arms, (place + 1) * arms + 1);
        const alike = (/** @type {number} */ edge, /** @type {number} */ arm) =>
          one.everybody
            ? edge === [...layout.thresholds[0], UNIT][place * arms + arm]
            : Math.abs(edge - start - first(arm) * (ends[place] - start)) <= UNITS;
        return own[0] === start && own[arms] === ends[place] && own.slice(1).every(alike);
      });
    });
  }

  /** The segment of a context. @param {number[]} columns */
  locate(columns) {
    return this.factors.reduce((found, one) => found * one.parts + one.locate(columns), 0);
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const segment = this.locate(columns);
    return this.layout.group(this.layout.hash(slot, segment), segment) % this.arms;
  }

  /**
   * What an application tells: the reward in [0, 1], then 1 or 0 for each guardrail. What is not given, or does not fit,
   * counts as no outcome, and as no.
   * @param {any} told @param {import("../spec.js").Spec} spec
   */
  read(told, spec) {
    const isSeveral = this.guardrails.length > 0 && told !== null && typeof told === "object";
    const all = isSeveral ? told : { reward: told };
    const isYes = (/** @type {any} */ value) => value === true || (isNumber(value) && value >= 0.5);
    return [scaledReward(spec.reward, all.reward), ...this.guardrails.map((name) => (isYes(all[name]) ? 1 : 0))];
  }

  /**
   * What a person contributes.
   * @param {number[]} columns @param {number} arm
   * @param {number[]} values as `read` gave them, and after them the numbers whose slopes policies tell
   * @param {number} slot coins of the choice
   */
  contribute(columns, arm, values, slot) {
    const segment = this.locate(columns);
    if (this.questions.length) {
      const group = this.layout.group(this.layout.hash(slot, segment), segment);
      const { fact, everybody } = this.questions[Math.floor(group / this.arms)];
      return { key: everybody ? this.segments : segment, value: fact === null ? 1 : values[fact] };
    }
    const [facts, numbers] = [values.slice(1, 1 + this.guardrails.length), values.slice(1 + this.guardrails.length)];
    const answer = facts.reduce((sum, yes, i) => sum + yes * 2 ** i, 0);
    const cell = this.freshCoins ? segment * this.arms + arm : segment;
    const value = lessExpected(values[0], numbers, this.learned);
    return { key: cell * 2 ** this.guardrails.length + answer, value, number: numbers[this.learned.length] ?? 0 };
  }
}
