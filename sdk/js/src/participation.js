// @ts-check
/** Taking part in one round: checked terms, decisions, and sealed reports. */

import { ALGORITHMS } from "./algorithms/index.js";
import { PrivateerError, malformed, refused } from "./errors.js";
import { columnsOf } from "./features.js";
import { REPORT_SIZE, WORDS } from "./mechanisms/symbols.js";
import { encode, joined } from "./msgpack.js";
import { readPublication } from "./publication.js";
import { seal } from "./sealing.js";
import { Spec } from "./spec.js";
import { verify } from "./verification.js";

const SEALING = 64;
const AGE_SIZE = 2;
const AGE_MAX = 65_535;
const JUMP = 1_000_000;

/** @typedef {{version: number, digest: Uint8Array, meaning: string, columns: number[], slot: number, arm: number}} Choice */

/** Uniform words of 64 bits from the operating system. @param {number} count */
const words = (count) => [...crypto.getRandomValues(new BigUint64Array(count))];
/** Fresh public coins; draw them before looking at the context. */
const coins = () => crypto.getRandomValues(new Uint32Array(1))[0];

/** A publication that this device has checked and will follow. */
export class Participation {
  /**
   * @param {Uint8Array<ArrayBuffer>} body the publication @param {string} name the experiment that was asked for
   * @param {import("./verification.js").Limits} limits @param {boolean} paused whether the server says that nobody is asked
   */
  static async checked(body, name, limits, paused = false) {
    try {
      return new Participation(await readPublication(body), name, limits, paused);
    } catch (error) {
      // A part that is missing shows as an error of the language.
      throw error instanceof PrivateerError ? error : malformed("this is not a publication");
    }
  }

  /** @param {Awaited<ReturnType<typeof readPublication>>} publication @param {string} name
   * @param {import("./verification.js").Limits} limits @param {boolean} paused */
  constructor(publication, name, limits, paused) {
    const { round, policy, drain } = publication;
    this.round = round;
    this.spec = new Spec(publication.spec);
    this.terms = policy?.terms;
    const Kind = ALGORITHMS.get(this.spec.algorithm);
    if (!Kind) throw refused("this client does not know the algorithm", "algorithm");
    if (!this.terms?.mechanism) throw malformed("not a policy");
    this.mechanism = round.batch > 0 ? mechanism(this.spec.armInKey ? Kind.ARM_IN_KEY : Kind.MECHANISMS, this.terms.mechanism) : null;
    /** @type {import("./algorithms/index.js").Policy} */
    this.policy = new Kind(policy, this.spec);
    this.decider = drain === null ? this.policy : new Kind(drain, this.spec);
    this.drains = drain !== null;
    this.header = [round.experiment, round.version, publication.keyId, publication.digest];
    this.digest = publication.digest;
    this.agree(name);
    this.isOpen = round.batch > 0 && this.policy.cohort === "" && !paused;
    if (this.isOpen && this.mechanism) verify(this.terms, this.mechanism, this.spec, round, limits);
  }

  /** Refuse a publication whose parts disagree. @param {string} name */
  agree(name) {
    const { round, spec, terms, policy, decider } = this;
    const size = SEALING + REPORT_SIZE + (policy.tellsAge ? AGE_SIZE : 0);
    const same = {
      experiment: round.experiment === spec.name && spec.name === name,
      version: round.version === policy.version && round.version === decider.version,
      model: round.model === spec.privacy.model && round.model === terms.model,
      batch: round.batch === terms.batch,
      messages: round.messages === 1,
      groups: round.groups === 1,
      cohort: policy.cohort === "" || (spec.sources.includes(policy.cohort) && !this.drains),
      drain: !this.drains || spec.window > 0,
      deadline: round.deadline === 0,
      sealed_size: round.batch === 0 || round.sealedSize === size,
    };
    for (const [field, agrees] of Object.entries(same)) {
      if (!agrees) throw refused("round, spec and policy disagree", field);
    }
  }

  /** Whether the round takes a report on what this person chooses now. */
  get asks() {
    return this.isOpen && !this.drains;
  }

  /** @param {Record<string, any>} context @param {number} [slot] for tests; by default fresh coins @returns {Choice} */
  choose(context, slot = coins()) {
    const columns = columnsOf(this.spec.features, context);
    const arm = this.decider.decide(columns, slot);
    const meaning = this.spec.meaning(this.spec.arms.length);
    return { version: this.round.version, digest: this.digest, meaning, columns, slot, arm };
  }

  /** Whether the round takes a report on a choice of this version. @param {number} decided */
  takes(decided) {
    const { version } = this.round;
    if (!this.isOpen || decided > version || (this.drains && decided === version)) return false;
    if (this.policy.takesOwnAlone) return decided === version;
    return !this.policy.tellsAge || this.age(decided) !== null;
  }

  /** @param {number} decided */
  age(decided) {
    const { version } = this.round;
    const same = Math.floor((version - 1) / JUMP) === Math.floor((decided - 1) / JUMP);
    return same && version - decided <= AGE_MAX ? version - decided : null;
  }

  /**
   * The message that a report is before it is sealed.
   * @param {Choice} choice @param {any} reward @param {bigint[]} noise @param {number} fresh coins of the report
   */
  message(choice, reward, noise = words(WORDS), fresh = coins()) {
    const slot = this.policy.freshCoins ? fresh : choice.slot;
    const told = this.policy.contribute(choice.columns, choice.arm, reward, this.spec, choice.slot);
    const symbols = /** @type {import("./algorithms/index.js").Symbols} */ (this.mechanism);
    const report = symbols.randomize({ slot, ...told }, noise);
    const age = this.age(choice.version) ?? 0;
    return this.policy.tellsAge ? joined([age & 255, age >> 8], report) : report;
  }

  /**
   * What is sent: the envelope of one sealed report.
   * @param {Uint8Array<ArrayBuffer>} message @param {Uint8Array<ArrayBuffer>} [id] for tests @param {CryptoKeyPair} [ephemeral] for tests
   */
  async body(message, id = crypto.getRandomValues(new Uint8Array(16)), ephemeral) {
    const info = encode(["privateer/report/1", this.round.model, this.header]);
    return encode([this.header, await seal(joined(id, message), this.round.publicKey, info, ephemeral)]);
  }
}

/** @param {any[]} kinds classes that may serve @param {any} told
 * @returns {import("./algorithms/index.js").Symbols} */
function mechanism(kinds, told) {
  const Kind = kinds.find((one) => one.TYPE === told.type);
  if (!Kind) throw malformed("this is not the mechanism of the algorithm and the trust model");
  return new Kind(told);
}
