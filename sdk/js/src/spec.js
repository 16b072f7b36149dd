// @ts-check
/** What a device reads in a spec. */

import { adjustments } from "./adjustment.js";
import { json } from "./bytes.js";
import { endOf } from "./choice.js";
import { sound, refused } from "./errors.js";
import { features, ofArms } from "./features.js";
import { isWhole, isWithin } from "./numbers.js";
import { TRUST, drawsOne, hidesArms } from "./trust.js";

/** @typedef {{model: string, epsilon: number | null, delta: number, arms: string, min_batch: number, honest_fraction: number,
 *   local_epsilon_max: number}} Privacy */

const PERIOD_MIN = 3600;
const REPORTS_MAX = 1000;
const EPSILON_MAX = 16;
const ACTIONS_MAX = 20_000;
const DIMENSION_MAX = 64;

export class Spec {
  /** @param {Uint8Array<ArrayBuffer>} body JSON */
  constructor(body) {
    const told = json(body);
    const { experiment, reward, privacy, algorithm } = told;
    sound([experiment, reward, privacy, algorithm].every((table) => table && typeof table === "object"), "spec");
    this.name = /** @type {string} */ (experiment.name);
    this.algorithm = /** @type {string} */ (algorithm.name);
    /** The section `[algorithm]`. @type {any} */
    this.table = algorithm;
    /** Names of the arms; none where people get points, or everybody the same actions. */
    this.arms = /** @type {string[]} */ (experiment.arms ?? []);
    const named = Array.isArray(this.arms) && this.arms.every((arm) => typeof arm === "string");
    sound(named && (!experiment.arms || this.arms.length >= 2), "experiment.arms");
    this.domain = told.domain ?? null;
    this.options = this.arms.length ? this.arms : unnamed(told);
    this.retired = /** @type {string[]} */ (experiment.retired ?? []);
    this.playable = this.arms.map((arm) => !this.retired.includes(arm));
    this.reward = /** @type {{low: number, high: number, default?: number | null, kind?: string, base_rate?: number | null}} */ (reward);
    sound(reward.low < reward.high, "reward");
    this.adjust = adjustments(reward.adjust ?? {});
    this.privacy = /** @type {Privacy} */ (privacy);
    if (!Object.hasOwn(TRUST, privacy.model)) throw refused("this client does not know the trust model", "model");
    this.trust = TRUST[privacy.model];
    this.checkPromise();
    this.tables = told.context?.features ?? {};
    this.features = isTables(this.tables) ? features(this.tables) : ofArms(told.context, this.arms);
    this.columns = [...this.features.values()].reduce((sum, one) => sum + one.columns, 0);
    this.sources = /** @type {string[]} */ ((told.sources ?? []).map((/** @type {any} */ one) => one.name));
    this.segments = told.segments ?? null;
    this.guardrails = /** @type {string[]} */ (algorithm.guardrails ?? []);
    this.window = /** @type {number} */ (experiment.conversion_window);
    this.times = /** @type {number} */ (experiment.reports_per_person);
    this.period = /** @type {number} */ (experiment.report_period ?? 86_400);
    /** How many people measure what choosing by context gains. */
    this.gainPeople = Math.floor((experiment.gain_share ?? 0) * experiment.horizon);
    this.checkTimes();
    /** What `meaning` has said. @type {Map<number, string>} */
    this.meanings = new Map();
  }

  /** Refuse a promise out of the range that is certified. */
  checkPromise() {
    const { epsilon, delta, arms, honest_fraction, min_batch, local_epsilon_max } = this.privacy;
    const within = (/** @type {any} */ one, /** @type {number} */ most) => one > 0 && isWithin(one, 0, most);
    const promised = this.trust.promises ? within(epsilon, EPSILON_MAX) : epsilon === null;
    const small = isWithin(delta, 0, 0.5) && delta < 0.5;
    const crowd = within(honest_fraction, 1) && isWhole(min_batch) && within(local_epsilon_max, EPSILON_MAX);
    // Where a curator sees records no report is private by itself.
    const told = ["seen", "hidden"].includes(arms)
      || (["as-local", "grouped"].includes(arms) && !(this.trust.curated && this.trust.promises));
    sound(promised && small && crowd && told, "privacy");
  }

  checkTimes() {
    const { window, times, period } = this;
    sound(window >= 0 && window < Infinity, "experiment.conversion_window");
    const sized = isWhole(times, 1, REPORTS_MAX) && period >= PERIOD_MIN && period < Infinity;
    sound(sized && !(this.asAlone && times > 1) && !(this.groupsArms && window), "experiment.reports_per_person");
  }

  /** Epsilon of the promise; infinite where nothing is promised. */
  get bound() {
    return this.privacy.epsilon ?? Infinity;
  }

  /** Whether reports hide the arm as they hide the bin. */
  get armInKey() {
    return this.privacy.arms === "seen" && hidesArms(this.trust);
  }

  /** Where coins alone choose arms: whether the people of a batch who got one arm are a batch of their own. */
  get groupsArms() {
    return this.privacy.arms === "grouped" && this.trust.batched;
  }

  /** Whether shuffled reports are made as those that nobody hides: each keeps epsilon by itself. */
  get asAlone() {
    return this.privacy.arms === "as-local" && this.trust.batched;
  }

  /** The most that a shuffled report may cost by itself. */
  get aloneMost() {
    return this.asAlone ? this.bound : this.privacy.local_epsilon_max;
  }

  /** Reports that a device makes in all, which share the promise: one where one time of many is drawn. */
  get reports() {
    return drawsOne(this.trust) ? 1 : this.times;
  }

  /** The calendar's period in which a report falls; 0 where a person reports once. @param {number} now */
  periodOf(now) {
    return this.times > 1 ? Math.floor(now / this.period) : 0;
  }

  /** When a report on a choice of now is due; null: when its outcome is told. @param {number} now */
  dueAfter(now) {
    return this.window ? endOf(this.window, now) : null;
  }

  /** What must not change between a choice and the report on it, of the first so many arms. @param {number} arms */
  meaning(arms) {
    const known = this.meanings.get(arms);
    if (known !== undefined) return known;
    const several = this.times > 1 ? [this.times, this.period] : [];
    const { tables, privacy, segments, guardrails } = this;
    // What rewards are expected to be means nothing to a report.
    const reward = { low: this.reward.low, high: this.reward.high, default: this.reward.default };
    const found = JSON.stringify([Object.entries(tables), reward, privacy, this.arms.slice(0, arms), segments, guardrails, several]);
    this.meanings.set(arms, found);
    return found;
  }
}

/** Whether features are those of a person, each with a table of its own. @param {any} told */
const isTables = (told) => typeof told === "object" && !Array.isArray(told);

/** What can be chosen where there are no arms: rows of actions, or coordinates of points. @param {any} told @returns {string[]} */
function unnamed({ actions, domain }) {
  const rows = Number(actions?.vectors?.length ?? actions?.count ?? 0);
  const coordinates = Number(domain?.dimension ?? 0);
  sound(rows <= ACTIONS_MAX && coordinates <= DIMENSION_MAX, "actions");
  return actions ? Array.from({ length: rows }, (_, row) => String(row)) : Array.from({ length: coordinates }, (_, i) => `x${i + 1}`);
}
