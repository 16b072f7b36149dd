// @ts-check
/** What a device reads in a spec. */

import { adjustments } from "./adjustment.js";
import { computeWindowEnd } from "./choice.js";
import { requireKnown, refused } from "./errors.js";
import { makeFeatures } from "./features.js";
import { isObject } from "./inputs.js";
import { isNumber, isPositive, isWhole, isWithin } from "./numbers.js";
import { TRUST, hidesArms } from "./trust.js";

/** @typedef {{model: string, epsilon: number | null, delta: number, arm_visibility: string, min_batch: number, honest_fraction: number,
 *   local_epsilon_max: number, tiers?: {name: string, epsilon: number}[]}} Privacy */

const PERIOD_MIN = 3600;
const REPORTS_MAX = 1000;
const EPSILON_MAX = 16;
/** The mean reward that is expected where the spec says none. */
const MIDDLE = 0.5;

export class Spec {
  /** @param {any} document JSON as decoded @param {Map<string, any>} kinds of policies, by the names of algorithms */
  constructor(document, kinds) {
    const { experiment, reward, privacy, algorithm } = document;
    requireKnown([experiment, reward, privacy, algorithm].every(isObject), "spec");
    this.name = /** @type {string} */ (experiment.name);
    /** The policies of the algorithm. @type {any} */
    this.Kind = kinds.get(algorithm.name);
    if (!this.Kind) throw refused("this client does not know the algorithm", "algorithm");
    /** The section `[algorithm]`. @type {any} */
    this.table = algorithm;
    /** Names of the arms; none where people get points, or everybody the same actions. */
    this.arms = /** @type {string[]} */ (experiment.arms ?? []);
    const named = Array.isArray(this.arms) && this.arms.every((arm) => typeof arm === "string");
    requireKnown(named && (!experiment.arms || this.arms.length >= 2), "experiment.arms");
    this.retired = /** @type {string[]} */ (experiment.retired_arms ?? []);
    this.playable = this.arms.map((arm) => !this.retired.includes(arm));
    this.reward = /** @type {{low: number, high: number, default?: number | null, kind?: string, base_rate?: number | null}} */ (reward);
    requireKnown(reward.low < reward.high, "reward");
    this.adjust = adjustments(reward.covariates ?? {});
    this.privacy = /** @type {Privacy} */ (privacy);
    if (!Object.hasOwn(TRUST, privacy.model)) throw refused("this client does not know the trust model", "model");
    this.trust = TRUST[privacy.model];
    this.checkPromise();
    /** Promises between which people choose, first the spec's own epsilon; none where there is no choice. */
    this.tiers = this.readTiers();
    /** The place of this device's tier among them. */
    this.tier = 0;
    this.tables = document.context?.features ?? {};
    this.features = this.readFeatures(document);
    this.columns = [...this.features.values()].reduce((sum, entry) => sum + entry.columns, 0);
    this.sources = /** @type {string[]} */ ((document.sources ?? []).map((/** @type {any} */ entry) => entry.name));
    this.segments = document.segments ?? null;
    this.guardrails = /** @type {string[]} */ (algorithm.guardrails ?? []);
    this.window = /** @type {number} */ (experiment.conversion_window_seconds);
    this.times = /** @type {number} */ (experiment.reports_per_person);
    this.period = /** @type {number} */ (experiment.report_period_seconds ?? 86_400);
    /** How many people measure what choosing by context gains. */
    this.gainPeople = Math.floor((experiment.evaluation_fraction ?? 0) * experiment.horizon);
    this.checkTimes();
    /** What `meaning` has said. @type {Map<number, string>} */
    this.meanings = new Map();
  }

  /** The features, of which each has a table of its own. @param {any} _document */
  readFeatures(_document) {
    requireKnown(this.hasTables, "context.features");
    return makeFeatures(this.tables);
  }

  /** Whether features are those of a person, not of each arm. */
  get hasTables() {
    return isObject(this.tables) && !Array.isArray(this.tables);
  }

  /** Refuse a promise out of the range that is certified. */
  checkPromise() {
    const { epsilon, delta, arm_visibility: visibility, honest_fraction, min_batch, local_epsilon_max } = this.privacy;
    const promised = this.trust.noise !== "nobody" ? isPositive(epsilon, EPSILON_MAX) : epsilon === null;
    const small = isWithin(delta, 0, 0.5) && delta < 0.5;
    const crowd = isPositive(honest_fraction, 1) && isWhole(min_batch) && isPositive(local_epsilon_max, EPSILON_MAX);
    // Where a curator sees records no report is private by itself.
    const isKnownVisibility = ["visible", "hidden"].includes(visibility)
      || (["as-local", "grouped"].includes(visibility) && (this.trust.noise === "nobody" || this.trust.crowd !== "release"));
    requireKnown(promised && small && crowd && isKnownVisibility, "privacy");
  }

  readTiers() {
    const { tiers = [], epsilon } = this.privacy;
    const isTier = (/** @type {any} */ tier) => isObject(tier) && typeof tier.name === "string" && isPositive(tier.epsilon, EPSILON_MAX);
    requireKnown(Array.isArray(tiers) && tiers.every(isTier) && (!tiers.length || this.trust.crowd === "nobody"), "privacy.tiers");
    return tiers.length ? [{ name: "", epsilon: /** @type {number} */ (epsilon) }, ...tiers] : [];
  }

  /** Take the highest tier of at most this epsilon, or the lowest one, which is refused then. @param {number} limit */
  chooseTier(limit) {
    const ascending = this.tiers.map((_, place) => place).sort((a, b) => this.compareTiers(a, b));
    this.tier = ascending.filter((place) => this.tiers[place].epsilon <= limit).pop() ?? ascending[0] ?? 0;
  }

  /** @param {number} a @param {number} b places of tiers */
  compareTiers(a, b) {
    const [left, right] = [this.tiers[a], this.tiers[b]];
    return left.epsilon - right.epsilon || (left.name < right.name ? -1 : 1);
  }

  checkTimes() {
    const { window, times, period } = this;
    requireKnown(window >= 0 && window < Infinity, "experiment.conversion_window_seconds");
    const sized = isWhole(times, 1, REPORTS_MAX) && period >= PERIOD_MIN && period < Infinity;
    requireKnown(sized && !(this.asAlone && times > 1) && !(this.groupsArms && window), "experiment.reports_per_person");
  }

  /** Epsilon of the promise to this person; infinite where nothing is promised. */
  get bound() {
    return this.tiers.length ? this.tiers[this.tier].epsilon : this.privacy.epsilon ?? Infinity;
  }

  /** The mean reward that is expected, from 0 to 1. */
  get expectedReward() {
    const { base_rate, low, high } = this.reward;
    return isNumber(base_rate) ? (base_rate - low) / (high - low) : MIDDLE;
  }

  /** Whether reports hide the arm as they hide the bin. */
  get armInKey() {
    return this.privacy.arm_visibility === "visible" && hidesArms(this.trust);
  }

  /** Where coins alone choose arms: whether the people of a batch who got one arm are a batch of their own. */
  get groupsArms() {
    return this.privacy.arm_visibility === "grouped" && this.trust.crowd === "batch";
  }

  /** Whether shuffled reports are made as those that nobody hides: each keeps epsilon by itself. */
  get asAlone() {
    return this.privacy.arm_visibility === "as-local" && this.trust.crowd === "batch";
  }

  /** The most that a shuffled report may cost by itself. */
  get aloneMost() {
    return this.asAlone ? this.bound : this.privacy.local_epsilon_max;
  }

  /** Reports that a device makes in all, which share the promise: one where one time of many is drawn. */
  get reports() {
    return this.trust.crowd === "nobody" ? 1 : this.times;
  }

  /** The calendar's period in which a report falls; 0 where a person reports once. @param {number} now */
  periodOf(now) {
    return this.times > 1 ? Math.floor(now / this.period) : 0;
  }

  /** When a report on a choice of now is due; null: when its outcome is told. @param {number} now */
  dueAfter(now) {
    return this.window ? computeWindowEnd(this.window, now) : null;
  }

  /** What must not change between a choice and the report on it, of the first so many arms. @param {number} arms */
  meaning(arms) {
    const cached = this.meanings.get(arms);
    if (cached !== undefined) return cached;
    // A report costs no more than the tier by which the person chose.
    const several = [...(this.times > 1 ? [this.times, this.period] : []), ...(this.tiers.length ? [this.bound] : [])];
    const { tables, privacy, segments, guardrails } = this;
    // What rewards are expected to be means nothing to a report.
    const reward = { low: this.reward.low, high: this.reward.high, default: this.reward.default };
    const meaning = JSON.stringify([Object.entries(tables), reward, privacy, this.arms.slice(0, arms), segments, guardrails, several]);
    this.meanings.set(arms, meaning);
    return meaning;
  }
}
