// @ts-check
/** Choices by an exported policy: nothing is fetched, nothing is reported, nothing is kept. */

import { selectFeatures, listInputNames } from "../adjustment.js";
import { checkAgreement } from "../agreement.js";
import { ALGORITHMS } from "../algorithms/index.js";
import { json } from "../bytes.js";
import { PrivateerError, invalid, unusable } from "../errors.js";
import { encodeColumns, listUnfit } from "../features.js";
import { toPlainValues } from "../inputs.js";
import { coins as drawn } from "../platform.js";
import { readPublication } from "../publication.js";
import { ConvexDecider } from "./convex.js";
import { readExport } from "./document.js";
import { PhasedDecider } from "./phased.js";
import { SparseDecider } from "./sparse.js";
import { DeciderSpec } from "./spec.js";

/** Policies that decide here; this client takes part in rounds of all but the last three. @type {Map<string, any>} */
const DECIDERS = new Map(
  Object.entries({ ...Object.fromEntries(ALGORITHMS), sparse: SparseDecider, phased: PhasedDecider, convex: ConvexDecider }),
);

/**
 * What is chosen: the name of an arm; how often each action is played, by its row; or a point as its coordinates, or two
 * points by the names `first` and `second`.
 * @typedef {string | Record<string, number> | number[] | Record<string, number[]>} Chosen
 */

/**
 * The policy of an exported experiment. It decides as the device of a person would who comes after the export, and it
 * needs neither a server nor a ledger: nothing is reported, so nobody learns from these choices, and they cost no privacy.
 * `OfflinePolicy.read` makes it.
 */
export class OfflinePolicy {
  /**
   * Read the file that `privateer export NAME FILE.json` wrote, and check it.
   * @param {string | Uint8Array} file its text or bytes
   * @param {{warn?: (message: string) => void}} [how] `warn` is told once of each feature whose value the spec has no place
   * for; the message names the feature, never the value
   * @throws {PrivateerError} `spec-invalid`: the file is no export, is damaged, is of another format, or has a policy that
   * this version of the library cannot follow
   */
  static async read(file, { warn = console.warn } = {}) {
    const document = await readExport(file);
    try {
      return new OfflinePolicy(document, await readPublication(document.published), warn);
    } catch (error) {
      // A part that is missing shows as an error of the language.
      const detail = error instanceof PrivateerError ? error.message : "its publication is not one";
      if (error instanceof PrivateerError && error.type === "spec-invalid") throw error;
      throw unusable(`cannot be followed: ${detail}; update the client library, or export it again`);
    }
  }

  /** @param {import("./document.js").Export} document @param {Awaited<ReturnType<typeof readPublication>>} publication
   * @param {(message: string) => void} warn */
  constructor(document, { round, spec: body, policy, drain }, warn) {
    this.spec = new DeciderSpec(json(body), DECIDERS);
    const { Kind } = this.spec;
    const decider = new Kind(policy, this.spec);
    /** @type {any} */
    this.decider = drain === null ? decider : new Kind(drain, this.spec);
    checkAgreement({ round, spec: this.spec, terms: policy.terms, policy: decider, decider: this.decider }, document.experiment);
    if (round.version !== document.version) throw unusable("its version is not that of its publication: export it again");
    /** Where the experiment stood when it was exported. A policy of one that was still open goes on trying arms. */
    this.experiment = document.experiment;
    this.version = document.version;
    this.status = document.status;
    /** What the experiment had found; null if its algorithm publishes no result. */
    this.result = document.result;
    this.warn = warn;
    /** @type {Set<string>} */
    this.warned = new Set();
  }

  /** Names of what `choose` asks for: features in order, and numbers from before that adjust the reward. */
  get features() {
    return listInputNames(this.spec);
  }

  /** Names of what can be chosen: arms, rows of actions, or coordinates. */
  get options() {
    return this.spec.options;
  }

  /**
   * Choose for a person.
   * @param {Record<string, any>} [context] a value for each feature
   * @param {number} [coins] 32 bits that decide where the policy draws among several arms: the same coins and context choose
   * the same. By default they come from the platform's secure random numbers
   * @template {Chosen} [T=string]
   * @returns {T} the name of an arm; where there are none, another one of `Chosen`
   */
  choose(context = {}, coins = drawn()) {
    if (!(Number.isInteger(coins) && coins >= 0 && coins < 2 ** 32)) {
      throw invalid("must be a whole number from 0 to 2**32 - 1: leave them out to have some drawn", "coins");
    }
    const values = toPlainValues(context);
    const columns = encodeColumns(this.spec.features, selectFeatures(this.spec, values));
    for (const message of listUnfit(this.spec.features, values).filter((message) => !this.warned.has(message))) {
      this.warned.add(message);
      this.warn(message);
    }
    const { decider } = this;
    const chosen = decider.show ? decider.show(columns, coins) : this.options[decider.decide(columns, coins)];
    return /** @type {T} */ (chosen);
  }
}
