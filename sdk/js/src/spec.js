// @ts-check
/** What a device reads in a spec. */

import { malformed, refused } from "./errors.js";
import { features } from "./features.js";

/** @typedef {{model: string, epsilon: number, delta: number, arms: string, min_batch: number, honest_fraction: number,
 *   local_epsilon_max: number}} Privacy */

export class Spec {
  /** @param {Uint8Array<ArrayBuffer>} body JSON */
  constructor(body) {
    const told = parsed(body);
    const { experiment, reward, privacy, algorithm } = told;
    if (![experiment, reward, privacy, algorithm].every((table) => table && typeof table === "object")) {
      throw malformed("not a spec");
    }
    this.name = /** @type {string} */ (experiment.name);
    this.algorithm = /** @type {string} */ (algorithm.name);
    this.arms = /** @type {string[]} */ (experiment.arms);
    if (!Array.isArray(this.arms) || this.arms.length < 2) throw malformed("an experiment has two arms or more");
    const retired = new Set(experiment.retired);
    this.playable = this.arms.map((arm) => !retired.has(arm));
    this.reward = /** @type {{low: number, high: number}} */ (reward);
    if (!(reward.low < reward.high)) throw malformed("the bounds of rewards are empty");
    this.privacy = /** @type {Privacy} */ (privacy);
    this.tables = told.context?.features ?? {};
    this.features = features(this.tables);
    this.columns = [...this.features.values()].reduce((sum, one) => sum + one.columns, 0);
    this.sources = /** @type {string[]} */ ((told.sources ?? []).map((/** @type {any} */ one) => one.name));
    // Several reports of a person share the promise, which this client does not check.
    if (experiment.reports_per_person !== 1) throw refused("this client makes one report of a person", "reports");
    this.guardrails = /** @type {string[]} */ (algorithm.guardrails ?? []);
    this.window = /** @type {number} */ (experiment.conversion_window);
  }

  /** Whether reports hide the arm as they hide the bin. */
  get armInKey() {
    return this.privacy.arms === "seen" && this.privacy.model === "shuffle";
  }

  /** What must not change between a choice and the report on it, of the first so many arms. @param {number} arms */
  meaning(arms) {
    return JSON.stringify([Object.entries(this.tables), this.reward, this.privacy, this.arms.slice(0, arms)]);
  }
}

/** @param {Uint8Array<ArrayBuffer>} body @returns {any} */
function parsed(body) {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    throw malformed("not a spec");
  }
}
