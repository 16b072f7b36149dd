// @ts-check
/** Taking part in one round: checked terms, decisions, and sealed reports. */

import { adjustOutcome, selectFeatures, encodeNumbers, computeOffset } from "./adjustment.js";
import { checkAgreement, requireAgreement } from "./agreement.js";
import { ALGORITHMS } from "./algorithms/index.js";
import { hex, concatBytes, json } from "./bytes.js";
import { PrivateerError, requireKnown, malformed, refused } from "./errors.js";
import { readArm, readArmCount, isDue } from "./choice.js";
import { encodeColumns } from "./features.js";
import { GainPolicy, measuresGain } from "./gain-policy.js";
import { TieredSymbol } from "./mechanisms/index.js";
import { encode } from "./msgpack.js";
import { coins, fillRandom, secureNoise } from "./platform.js";
import { readPublication } from "./publication.js";
import { seal } from "./sealing.js";
import { Spec } from "./spec.js";
import { verify } from "./verification.js";

const SEALING = 64;
const AGE_SIZE = 2;
const AGE_MAX = 65_535;
const JUMP = 1_000_000;

/**
 * What was decided for a person, and what came of it as the policy reads it. `due` is when the report on it may be made,
 * in seconds since 1970; null: when its outcome is told.
 * @typedef {{version: number, digest: string, meaning: string, columns: number[], slot: number, arm: number,
 *   values: number[], window: number, due: number | null, period: number, retired?: string[], offset?: number, numbers?: number[]}} Choice the
 * arms that nobody got any more, what adjusting subtracts from the reward, and numbers whose slopes policies tell; one of an
 * earlier version does not say
 */

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
    this.spec = new Spec(json(publication.spec), ALGORITHMS);
    // A device gives as much as its limits allow at most: the tiers are the spec's, the choice is the device's.
    this.spec.chooseTier(Math.min(limits.epsilon, limits.local_epsilon));
    this.terms = this.spec.tiers.length && round.batchSize > 0 ? { ...policy?.terms, epsilon: this.spec.bound } : policy?.terms;
    const { Kind } = this.spec;
    requireKnown(this.spec.arms.length, "experiment.arms");
    const named = this.spec.groupsArms || this.spec.asAlone;
    requireKnown(!named || Kind.ARMS.includes(this.spec.privacy.arm_visibility), "privacy.arm_visibility");
    requireKnown(this.terms?.mechanism);
    const measures = measuresGain(policy);
    const question = /** @type {import("./trust.js").Question} */ (measures ? "hits" : Kind.QUESTION);
    const serving = this.spec.trust.serves[question];
    this.mechanism = round.batchSize > 0 ? makeMechanism(serving, this.terms.mechanism, this.spec.tier) : null;
    /** @type {import("./algorithms/index.js").Policy | GainPolicy} */
    this.policy = measures ? new GainPolicy(policy, this.spec, Kind) : new Kind(policy, this.spec);
    requireKnown(!this.mechanism || !("fits" in this.policy) || this.policy.fits(this.mechanism), "mechanism");
    this.decider = drain === null ? this.policy : new Kind(drain, this.spec);
    this.drains = drain !== null;
    this.header = [round.experiment, round.version, publication.keyId, publication.digest];
    this.digest = publication.digest;
    this.agree(name);
    this.isPaused = paused;
    this.isOpen = round.batchSize > 0 && this.policy.cohort === "" && !paused;
    if (this.isOpen && this.mechanism) verify(this.terms, this.mechanism, this.spec, round, limits);
  }

  /** Refuse a publication whose parts disagree. @param {string} name */
  agree(name) {
    const { round, policy } = this;
    const size = SEALING + (this.mechanism?.reportSize ?? 0) + (policy.tellsAge ? AGE_SIZE : 0);
    checkAgreement(this, name);
    requireAgreement({
      messages: round.batchSize === 0 || round.messages === this.mechanism?.messages,
      groups: round.groups === 1,
      deadline: round.deadline === 0,
      sealed_size: round.batchSize === 0 || round.sealedSize === size,
    });
  }

  /** Whether people decide by the final policy. */
  get isOver() {
    return this.round.batchSize === 0 || this.drains;
  }

  /** Whether the round takes a report on what this person chooses now. */
  get asks() {
    return this.isOpen && !this.drains;
  }

  /**
   * @param {Record<string, any>} context @param {number} [slot] for tests; by default fresh coins
   * @param {number} [now] seconds since 1970 @returns {Choice}
   */
  choose(context, slot = coins(), now = Date.now() / 1000) {
    const { spec, policy } = this;
    const columns = encodeColumns(spec.features, selectFeatures(spec, context));
    const offset = computeOffset(spec, context);
    return {
      version: this.round.version,
      digest: hex(this.digest),
      meaning: spec.meaning(spec.arms.length),
      columns,
      slot,
      arm: this.decider.decide(columns, slot),
      values: policy.read(adjustOutcome(null, spec, offset), spec),
      window: spec.window,
      due: spec.dueAfter(now),
      period: spec.periodOf(now),
      retired: spec.retired,
      offset,
      numbers: encodeNumbers(spec, context),
    };
  }

  /** Refuse a publication under which a choice means something else. @param {Choice} choice */
  check(choice) {
    if (!this.means(choice)) {
      throw refused("features, arms, rewards or privacy are not those by which the person chose", "spec");
    }
    if (this.round.version === choice.version && hex(this.digest) !== choice.digest) {
      throw refused("the server has published another policy of this version", "version");
    }
  }

  /**
   * Whether a choice that is kept is no longer the person's. One that is due stays, for the round that takes it. Where the
   * experiment waits for outcomes another retired arm ends it before, and nothing else. Elsewhere it ends with its period, when
   * nobody is asked, and when no report on it would count.
   * @param {Choice} choice @param {number} now seconds since 1970
   */
  lapsed(choice, now) {
    const { spec, round } = this;
    if (isDue(choice, now)) return !choice.window && !this.means(choice);
    // Whoever had any arm: the age of a report would tell who chose anew, and so who had the one that is retired.
    if (`${choice.retired ?? []}` !== `${spec.retired}`) return true;
    if (choice.window) return false;
    // Another page may be ahead of this one.
    const counts = choice.version > round.version || this.counts(choice.version);
    return round.batchSize === 0 || !counts || choice.period !== spec.periodOf(now) || !this.means(choice);
  }

  /**
   * Whether the arm that a device keeps is still the person's: until it is retired, the period ends, or the experiment does.
   * @param {import("./ledgers/arm.js").KeptArm | null} stored @param {number} now seconds since 1970
   */
  shows(stored, now) {
    const { spec } = this;
    if (!stored || stored.arm === null || this.isOver || stored.period !== spec.periodOf(now)) return false;
    return spec.meaning(readArmCount(stored)) === stored.meaning && !spec.retired.includes(readArm(stored));
  }

  /** Whether a choice means here what it meant when it was made. @param {Choice} choice */
  means(choice) {
    return this.spec.meaning(readArmCount(choice)) === choice.meaning;
  }

  /** Whether the round takes a report on a choice of this version. @param {number} decided */
  takes(decided) {
    const { version } = this.round;
    if (!this.isOpen || decided > version || (this.drains && decided === version)) return false;
    return this.counts(decided);
  }

  /** Whether a report on a choice of this version means something to the round. @param {number} decided */
  counts(decided) {
    const { version } = this.round;
    if (this.policy.takesOwnAlone) return decided === version;
    return !this.policy.tellsAge || this.age(decided) !== null;
  }

  /** @param {number} decided */
  age(decided) {
    const { version } = this.round;
    const isSameBlock = Math.floor((version - 1) / JUMP) === Math.floor((decided - 1) / JUMP);
    return isSameBlock && version - decided <= AGE_MAX ? version - decided : null;
  }

  /** What a person tells who chose. @param {Choice} choice @param {number} [fresh] coins of the report, by default those of the choice */
  contribution({ columns, arm, values, slot, numbers = [] }, fresh = slot) {
    return this.policy.contribute(columns, arm, [...values, ...numbers], slot, fresh);
  }

  /**
   * What a report is before it is sealed: its messages, one after the other.
   * @param {Choice} choice @param {import("./platform.js").Noise} noise @param {number} fresh coins of the report
   */
  message(choice, noise = secureNoise, fresh = coins()) {
    if (!this.mechanism) throw refused("nobody is asked", "batch_size");
    const slot = this.policy.freshCoins ? fresh : choice.slot;
    const emptyContribution = { key: -1, value: 0, vector: /** @type {number[]} */ ([]) };
    const report = this.mechanism.randomize({ ...emptyContribution, slot, ...this.contribution(choice, fresh) }, noise);
    const age = this.age(choice.version) ?? 0;
    return this.policy.tellsAge ? concatBytes([age & 255, age >> 8], report) : report;
  }

  /**
   * What is sent: an envelope of the messages, each sealed by itself with an id of its own.
   * @param {Uint8Array<ArrayBuffer>} messages one after the other
   * @param {Uint8Array<ArrayBuffer>[]} [ids] for tests @param {CryptoKeyPair[]} [ephemerals] for tests
   */
  async body(messages, ids = [], ephemerals = []) {
    const info = encode(["privateer/report/1", this.round.model, this.header]);
    const { publicKey, messages: count } = this.round;
    const size = messages.length / count;
    const sealed = Array.from({ length: count }, (_, i) => {
      const id = ids[i] ?? fillRandom(new Uint8Array(16));
      return seal(concatBytes(id, messages.slice(i * size, (i + 1) * size)), publicKey, info, ephemerals[i]);
    });
    return encode([this.header, concatBytes(...(await Promise.all(sealed)))]);
  }
}

/** @param {any[]} kinds classes that may serve @param {any} decoded @param {number} tier of the person @returns {import("./mechanisms/index.js").Mechanism} */
function makeMechanism(kinds, decoded, tier) {
  const Kind = kinds.find((kind) => kind.TYPE === decoded.type);
  requireKnown(Kind, "mechanism");
  return Kind === TieredSymbol ? new TieredSymbol(decoded, tier) : new Kind(decoded);
}
