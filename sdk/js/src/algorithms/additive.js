// @ts-check
/** Additive bandits: Thompson sampling of sums of shape functions, by public coins. */

import { readArray, readList } from "../arrays.js";
import { SlotLayout, chooseClass, isRising, readSeed } from "../coins.js";
import { formatFields, requireKnown } from "../errors.js";
import { CellPairs, FeatureSums, NamedSymbol } from "../mechanisms/index.js";
import { isPositive, isWhole } from "../numbers.js";
import { Questions } from "./additive/cells.js";
import { CoinArms, startsFromLevels } from "./additive/coin-arms.js";
import { Policy, readPlayable } from "./policy.js";

/** The unit of terms, in expected reward: sums of whole numbers are the same in every language. */
const STEP = 2 ** -13;
const DRAWS_MAX = 64;

export class AdditivePolicy extends Policy {
  /** @type {import("../trust.js").Question} */
  static QUESTION = "features";

  /** @param {any} decoded the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(decoded, spec) {
    super(decoded, spec);
    this.questions = new Questions(spec);
    const [arms, terms] = [spec.arms.length, this.questions.terms];
    this.draws = readWholeSteps(decoded.draws, [null, arms, terms]);
    this.means = readWholeSteps(decoded.means, [arms, terms]);
    this.count = this.draws.length / (arms * terms);
    this.edges = readList(decoded.edges, "<u4");
    this.countsArms = decoded.counts_arms;
    this.playable = readPlayable(decoded, spec);
    this.seed = readSeed(decoded.seed);
    /** What residuals are never below, as a positive number; less than 1 where rewards are rare. @type {number} */
    this.below = decoded.below ?? 1;
    /** Whom coins give an arm, where no crowd hides a report. */
    this.plan = decoded.plan ? new CoinArms(decoded.plan, this.questions, this.playable) : null;
    // Those that may give an arm go with the report.
    this.freshCoins = this.plan === null;
    /** Whether coins choose one question for a person, whose answer a curator gets. */
    this.asksOne = false;
    this.check(decoded, spec);
  }

  get tellsAge() {
    return false;
  }

  get takesOwnAlone() {
    return false;
  }

  /** @param {any} decoded @param {import("../spec.js").Spec} spec */
  check(decoded, spec) {
    const { questions, edges } = this;
    const isSamePlan = questions.is(decoded.questions) && this.countsArms === (spec.trust.noise === "nobody");
    const hasDraws = isWhole(this.count, 1, DRAWS_MAX);
    const parted = edges.length === questions.count - 1 && isRising(edges);
    // Where nobody is asked there are no groups that coins could name.
    const planned = (this.plan !== null) === startsFromLevels(spec) && (decoded.terms.batch_size > 0 || !this.plan?.given);
    const bounded = isPositive(this.below, 1) && (this.plan === null || this.below === 1);
    requireKnown(isSamePlan && hasDraws && parted && planned && bounded);
  }

  /** Whether a mechanism tells what the round asks. @param {any} mechanism */
  fits(mechanism) {
    const arms = this.playable.length;
    if (mechanism instanceof FeatureSums) return formatFields(mechanism, { arms, sizes: this.questions.sizes, countsArms: this.countsArms, below: this.below });
    if (mechanism.constructor === CellPairs) {
      this.layout = new SlotLayout(mechanism.layout.seed, [this.edges], this.questions.count);
      this.asksOne = true;
      return !this.countsArms && mechanism.layout.keys === this.questions.parts * arms;
    }
    if (!(mechanism instanceof NamedSymbol) || mechanism.levels !== 2) return false;
    const { thresholds } = mechanism.layout;
    this.layout = mechanism.layout;
    // All questions have one alphabet: people hide each other whichever they are asked.
    const keys = arms * Math.max(...this.questions.sizes);
    const ends = this.plan?.ends.slice(0, -1) ?? this.edges;
    return thresholds.length === keys && thresholds.every((row) => row.length === ends.length && row.every((edge, i) => edge === ends[i]));
  }

  /** The group of coins, of a question's or a plan's. @param {number} slot */
  group(slot) {
    const layout = /** @type {import("../coins.js").Layout} */ (this.layout);
    return layout.group(layout.hash(slot, 0), 0);
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const forcedArm = this.plan?.given ? this.plan.groups[this.group(slot)].arm : -1;
    if (forcedArm >= 0) return forcedArm;
    const ownCells = this.questions.locate(columns);
    const [arms, terms] = [this.playable.length, this.questions.terms];
    const first = chooseClass(slot, this.seed, this.count) * arms;
    let [best, largest] = [-1, -Infinity];
    for (let arm = 0; arm < arms; arm++) {
      if (!this.playable[arm]) continue;
      const score = sumTerm(this.draws, (first + arm) * terms, ownCells);
      if (score > largest) [best, largest] = [arm, score];
    }
    return best;
  }

  /** What a person contributes: how far the reward is from what is expected, at the place of their arm and cells.
   * @param {number[]} columns @param {number} arm @param {number[]} values as `read` gave them @param {number} slot coins of the choice
   * @param {number} fresh coins of the report */
  contribute(columns, arm, values, slot, fresh) {
    const ownCells = this.questions.locate(columns);
    const residual = clampResidual(STEP * sumTerm(this.means, arm * this.questions.terms, ownCells), values[0], this.below);
    if (!this.layout) return { arm, answers: this.questions.sizes.map((_, question) => this.questions.part(question, ownCells)), value: residual };
    if (this.plan) return this.plan.contribution(this.plan.groups[this.group(slot)], ownCells, arm, values[0], residual);
    const askedQuestion = this.group(fresh);
    const first = this.asksOne ? /** @type {number} */ (this.questions.starts[askedQuestion]) : 0;
    return { key: (first + this.questions.part(askedQuestion, ownCells)) * this.playable.length + arm, value: (this.below + residual) / (1 + this.below) };
  }
}

/** The sum of the term that everybody has and of a person's own. @param {Int16Array} table @param {number} start @param {Int32Array} ownCells */
function sumTerm(table, start, ownCells) {
  let total = table[start];
  for (let i = 0; i < ownCells.length; i++) total += table[start + ownCells[i]];
  return total;
}

/** What a reward is away from the expected one, from -below to 1 though sums may be beyond 0 and 1.
 * @param {number} prediction @param {number} reward @param {number} below */
function clampResidual(prediction, reward, below) {
  const expected = below < 1 ? Math.min(prediction, below / (1 + below)) : prediction;
  return Math.max((reward - expected) / Math.max(expected, 1 - expected), -below);
}

/** Whole numbers of a shape, of which null may be any. @param {any} encoded @param {(number | null)[]} expected */
function readWholeSteps(encoded, expected) {
  const { values, shape } = readArray(encoded, "<i2", expected.length);
  requireKnown(shape.every((length, axis) => expected[axis] === null || expected[axis] === length));
  return Int16Array.from(values);
}
