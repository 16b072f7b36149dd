// @ts-check
/** One person's part in one experiment: choose, then report. */

import { isDue, isSame, told } from "./choice.js";
import { PrivateerError, alreadyReported, invalid } from "./errors.js";
import { unfit } from "./features.js";
import { allows } from "./ledgers/ledger.js";
import { isNew, madeOn } from "./reports.js";

/** @typedef {import("./participation.js").Choice} Choice */
/** @typedef {import("./delivery.js").Outcome} Outcome */

/** `Client.join` makes it. */
export class Session {
  /**
   * @param {import("./publications.js").Publications} publications @param {import("./publications.js").Published} published
   * @param {import("./ledgers/ledger.js").Entry} entry what the ledger has @param {boolean} isTime whether the device reports
   * this time: where it reports one time of several, it has drawn which
   */
  constructor(publications, published, entry, isTime) {
    this.publications = publications;
    this.client = publications.client;
    this.published = published;
    this.entry = entry;
    this.isTime = isTime;
    /** @type {Choice | null} */
    this.choice = entry.choice;
    /** Whether this person is asked for a report: the round asks them, or the device keeps their choice. */
    this.asked = this.isOpen && (this.choice !== null || this.isAsked);
    /** The reason of a refused report, or why one still waits. @type {string | null} */
    this.refusal = null;
    /** @type {Promise<unknown>} */
    this.keeping = Promise.resolve();
  }

  /** Whether the policy is one that the device had kept, since the server did not answer. */
  get offline() {
    return this.published.sent === null;
  }

  get participation() {
    return this.published.participation;
  }

  /** Names of the features, in order. */
  get features() {
    return [...this.participation.spec.features.keys()];
  }

  /** Names of the arms. */
  get arms() {
    return this.participation.spec.arms;
  }

  get isOpen() {
    const { payment } = this.entry;
    const period = this.choice ? this.choice.period : this.participation.spec.periodOf(this.client.clock.now());
    return payment === null || allows(payment, period);
  }

  get isAsked() {
    const { participation, entry } = this;
    return participation.asks && (participation.spec.window > 0 || isNew(entry, participation)) && this.isTime;
  }

  /**
   * Choose for this person; nothing is sent. The report is about the last choice before it; one that is kept stands until
   * its report is due. Where the experiment waits for outcomes the choice is kept at once.
   * @param {Record<string, any>} [context] a value for each feature
   * @returns {string} the name of an arm
   */
  choose(context = {}) {
    const now = this.client.clock.now();
    const kept = this.entry.choice;
    if (kept && !isDue(kept, now)) {
      this.choice = kept;
    } else {
      this.choice = this.participation.choose(context, undefined, now);
      this.client.warn(unfit(this.participation.spec.features, context));
      this.asked &&= this.isAsked;
      if (this.choice.window && this.asked) this.keep(this.choice);
    }
    return this.arms[this.choice.arm];
  }

  /** @param {Choice} choice */
  keep(choice) {
    this.entry = { ...this.entry, choice };
    this.keeping = this.client.ledger.keep(this.publications.identity, (standing) => {
      return standing && !isDue(standing, this.client.clock.now()) ? standing : choice;
    });
    // `report` and `save` tell what went wrong.
    this.keeping.catch(() => {});
  }

  /** Keep the choice until its report is made: `Client.resume` finds it after a restart. */
  async save() {
    if (!this.choice) throw invalid("choose an arm first", "reward");
    if (this.asked && this.entry.choice === null) this.keep(this.choice);
    await this.keeping;
  }

  /** Erase the choice, here and in the ledger: no report is made of it, and the next call of `choose` is free. */
  async forget() {
    await this.client.ledger.forget(this.publications.identity);
    this.entry = { ...this.entry, choice: null };
    this.choice = null;
    this.asked &&= this.isAsked;
  }

  /**
   * Tell what came of the choice: pay, randomize, seal and send, once. Where the experiment waits for outcomes the device
   * keeps this one, in the place of the one before: the first `join` or `resend` after the window makes the report.
   * @param {number | boolean | null | Record<string, number | boolean | null>} reward null where nothing is known; with
   * guardrails `{reward, ...}` by their names
   * @returns {Promise<Outcome>}
   */
  async report(reward) {
    const { client, choice } = this;
    const { identity } = this.publications;
    const entry = await client.ledger.entry(identity);
    this.entry = { ...entry, choice: entry.choice ?? this.entry.choice };
    if (!this.isOpen) throw alreadyReported();
    if (!choice) throw invalid("choose an arm first: call session.choose({...})", "reward");
    const values = this.participation.policy.read(reward, this.participation.spec);
    if (!this.asked) return "not-asked";
    this.participation.check(choice);
    await this.keeping;
    if (choice.window) return (await this.told(choice, values)) ? "pending" : "not-asked";
    return this.sent(told(choice, values, client.clock.now()));
  }

  /** Keep an outcome with the choice, unless another one is kept: of another tab. @param {Choice} choice @param {number[]} values */
  async told(choice, values) {
    const now = this.client.clock.now();
    const kept = await this.client.ledger.keep(this.publications.identity, (standing) => {
      const own = standing ?? (isDue(choice, now) ? null : choice);
      return own && isSame(own, choice) ? told(own, values, now) : own;
    });
    return kept !== null && isSame(kept, choice);
  }

  /** Report to the open round, or keep the outcome if nobody says which one that is. @param {Choice} choice @returns {Promise<Outcome>} */
  async sent(choice) {
    const { client, publications } = this;
    const { identity } = publications;
    try {
      this.published = await publications.opened(this.published);
      const sealed = await madeOn(publications, choice, this.participation);
      this.asked &&= sealed === null;
      if (sealed) return await this.delivered(sealed);
    } catch (error) {
      const type = error instanceof PrivateerError ? error.type : "";
      if (type === "unavailable") return (await client.ledger.keep(identity, (kept) => kept ?? choice)) ? "pending" : "not-asked";
      if (type !== "deleted") throw error;
    }
    await this.forget();
    return "not-asked";
  }

  /** @param {import("./ledgers/ledger.js").Sealed} sealed */
  async delivered(sealed) {
    const { client, publications } = this;
    this.choice = null;
    this.entry = await client.ledger.entry(publications.identity);
    const { outcome, reason } = await client.delivery.until(publications.identity, sealed, client.patience);
    this.refusal = reason;
    return outcome;
  }
}
