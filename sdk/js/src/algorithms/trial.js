// @ts-check
/** A trial: arms against a control, by segments of people. */

import { areSlopes, selectLearned, subtractExpected } from "../adjustment.js";
import { readList } from "../arrays.js";
import { SlotLayout, UNIT } from "../coins.js";
import { requireKnown } from "../errors.js";
import { scaleReward } from "../features.js";
import { isObject } from "../inputs.js";
import { isNumber, isWhole } from "../numbers.js";
import { Policy } from "./policy.js";

/** By how many units of coins rounding may move an arm in one question beside another. */
const UNITS = 2;

/** @typedef {{share: number, fact: number | null, everybody: boolean}} Question what coins may ask; see docs/foreign-clients/policies-trial.md */

/** One feature that parts people. */
class Factor {
  /** @param {any} decoded */
  constructor(decoded) {
    this.column = decoded.column;
    this.columns = decoded.columns;
    this.flagged = decoded.flagged;
    this.codes = readList(decoded.codes, "<i8");
    this.cuts = readList(decoded.cuts, "<f8");
    this.parts = this.codes.length || this.cuts.length + 1 + (this.flagged ? 1 : 0);
  }

  /** @param {number[]} columns */
  locate(columns) {
    const part = columns.slice(this.column, this.column + this.columns);
    if (this.codes.length) {
      const code = part.reduce((sum, bit) => 2 * sum + Math.trunc(bit), 0);
      return Math.min(this.codes.filter((each) => each < code).length, this.codes.length - 1);
    }
    if (this.flagged && part[1] > 0) return this.parts - 1;
    return this.cuts.filter((cut) => cut <= part[0]).length;
  }
}

export class TrialPolicy extends Policy {
  /** @type {import("../trust.js").Question} */
  static QUESTION = "hits";
  static ARMS = /** @type {string[]} */ ([]);

  /** @param {any} decoded the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(decoded, spec) {
    super(decoded, spec);
    requireKnown(Array.isArray(decoded.segments?.factors));
    this.factors = /** @type {Factor[]} */ (decoded.segments.factors.map((/** @type {any} */ each) => new Factor(each)));
    this.layout = SlotLayout.read(decoded.choice);
    this.reported = SlotLayout.read(decoded.terms.mechanism.layout);
    this.freshCoins = this.reported.groups === 1;
    this.guardrails = spec.guardrails;
    /** @type {Question[]} */
    this.questions = decoded.questions;
    /** @type {import("../adjustment.js").Learned[]} */
    this.learned = decoded.learned === undefined ? [] : decoded.learned;
    this.arms = spec.arms.length;
    this.segments = this.factors.reduce((product, each) => product * each.parts, 1);
    this.check(spec, decoded);
  }

  /** @param {import("../spec.js").Spec} spec @param {any} decoded */
  check(spec, decoded) {
    const { layout, reported, factors, questions, segments } = this;
    // A curator's record names the arm, too.
    const namesArms = spec.armInKey || spec.trust.noise !== "devices";
    const inside = factors.every((each) => isWhole(each.column, 0) && isWhole(each.columns) && each.column + each.columns <= spec.columns);
    const whole = questions.some((each) => each.everybody) ? 1 : 0;
    const groups = this.arms * Math.max(1, questions.length);
    const chooses = layout.keys === segments + whole && layout.groups === groups && layout.rises;
    const isRetired = (/** @type {number} */ group) => !spec.playable[group % this.arms];
    const played = layout.thresholds.every((_, key) => layout.shares(key).every((share, group) => share === 0 || !isRetired(group)));
    const open = selectLearned(spec.adjust);
    requireKnown(inside && chooses && played && this.asksEvenly() && areSlopes(this.learned, open));
    const answers = questions.length ? 1 : 2 ** this.guardrails.length;
    const keys = layout.keys * answers * (this.freshCoins ? this.arms : 1);
    const rows = (/** @type {number} */ key) => (this.freshCoins ? [] : layout.thresholds[Math.floor(key / answers)]);
    const isSameLayout = reported.keys === keys && reported.thresholds.every((row, key) => row.join() === rows(key).join());
    this.asked = { keys, expected: spec.reward.kind === "numeric" ? spec.expectedReward : null, beside: this.learned.length < open };
    const asks = isSameLayout && reported.seed === layout.seed && this.freshCoins === namesArms && (decoded.terms.mechanism.buckets ?? 1) <= keys;
    requireKnown(asks || decoded.terms.batch_size === 0);
  }

  /** Whether a mechanism tells what the round asks. @param {any} mechanism */
  fits(mechanism) {
    return mechanism.fits(this.asked);
  }

  /** Whether each question has the same coins in every segment and all arms alike; about everybody, each arm the same. */
  asksEvenly() {
    const { layout, questions, arms } = this;
    const hasKnownFacts = questions.every((each) => each.fact === null || isWhole(each.fact, 0, this.guardrails.length));
    let end = 0;
    const ends = questions.map((each) => Math.round((end += each.share) * UNIT));
    if (!hasKnownFacts || (questions.length && (ends[ends.length - 1] !== UNIT || this.freshCoins))) return false;
    return layout.thresholds.every((row) => {
      const edges = [0, ...row, UNIT];
      const first = (/** @type {number} */ arm) => edges[arm + 1] / ends[0];
      return questions.every((each, place) => {
        const start = place ? ends[place - 1] : 0;
        const part = edges.slice(place * arms, (place + 1) * arms + 1);
        const isSameEdge = (/** @type {number} */ edge, /** @type {number} */ arm) =>
          each.everybody
            ? edge === [...layout.thresholds[0], UNIT][place * arms + arm]
            : Math.abs(edge - start - first(arm) * (ends[place] - start)) <= UNITS;
        return part[0] === start && part[arms] === ends[place] && part.slice(1).every(isSameEdge);
      });
    });
  }

  /** The segment of a context. @param {number[]} columns */
  locate(columns) {
    return this.factors.reduce((index, each) => index * each.parts + each.locate(columns), 0);
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const segment = this.locate(columns);
    return this.layout.group(this.layout.hash(slot, segment), segment) % this.arms;
  }

  /**
   * What an application tells: the reward in [0, 1], then 1 or 0 for each guardrail. What is not given, or does not fit,
   * counts as no outcome, and as no.
   * @param {any} decoded @param {import("../spec.js").Spec} spec
   */
  read(decoded, spec) {
    const isSeveral = this.guardrails.length > 0 && isObject(decoded);
    const all = isSeveral ? decoded : { reward: decoded };
    const isYes = (/** @type {any} */ value) => value === true || (isNumber(value) && value >= 0.5);
    return [scaleReward(spec.reward, all.reward), ...this.guardrails.map((name) => (isYes(all[name]) ? 1 : 0))];
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
    const value = subtractExpected(values[0], numbers, this.learned);
    return { key: cell * 2 ** this.guardrails.length + answer, value, number: numbers[this.learned.length] ?? 0 };
  }
}
