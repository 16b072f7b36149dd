// @ts-check
/** One person's part in one experiment: choose, then report. */

import { armOf, isDue, isSame, told } from "./choice.js";
import { adjusted, namesOf, unfitNumbers } from "./adjustment.js";
import { PrivateerError, alreadyReported, invalid } from "./errors.js";
import { unfit } from "./features.js";
import { plainOf, unfitOutcome } from "./inputs.js";
import { offered, showing } from "./ledgers/arm.js";
import { allows } from "./ledgers/ledger.js";
import { coins } from "./platform.js";
import { isNew, madeOn } from "./reports.js";

/** @typedef {import("./participation.js").Choice} Choice */
/** @typedef {import("./delivery.js").Outcome} Outcome */

/** `Client.join` makes it. */
export class Session {
  /**
   * @param {import("./publications.js").Publications} publications @param {import("./publications.js").Published} published
   * @param {import("./ledgers/ledger.js").Entry} entry what the ledger has @param {Choice | null} kept the choice in it
   * @param {boolean} isTime whether the device reports this time: where it reports one time of several, it has drawn which
   * @param {import("./ledgers/arm.js").KeptArm} arm that the person saw last, and the coins of the next choice
   */
  constructor(publications, published, entry, kept, isTime, arm) {
    this.publications = publications;
    this.client = publications.client;
    this.published = published;
    this.entry = entry;
    this.isTime = isTime;
    this.arm = arm;
    /** Of which unfit values the developer knows. @type {Set<string>} */
    this.warned = new Set();
    /** Whether that arm was shown instead of a choice. */
    this.isShown = false;
    /** The choice that the ledger has, or is about to. @type {Choice | null} */
    this.kept = kept;
    /** What a report is about. @type {Choice | null} */
    this.choice = kept;
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

  /** Names of what `choose` asks for: features, and numbers from before that adjust the reward. */
  get features() {
    return namesOf(this.participation.spec);
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
   * Choose for this person; nothing is sent. The report is about the last choice before it. The choice is kept, encrypted, if
   * the person is asked for a report, and stands, also in later sessions: until its report is made or due, its period is
   * over, or no report on it would count any more. The arm stays after its report, and where nobody is asked, until it is
   * retired, the period is over, the person is asked for another report, or the experiment is over.
   * @param {Record<string, any>} [context] a value for each feature, and each number that adjusts the reward
   * @param {{fresh?: boolean, sticky?: boolean}} [how] fresh: decide anew, in the place of the choice that is kept. Whoever sees
   * the arms then sees one more. sticky: false to decide anew each time once the report is made, or if nobody is asked
   * @returns {string} the name of an arm
   */
  choose(context = {}, { fresh = false, sticky = true } = {}) {
    this.client.refuse();
    const { participation, kept } = this;
    const now = this.client.clock.now();
    this.isShown = false;
    if (!fresh && kept && participation.stands(kept, now)) {
      this.choice = kept;
      return armOf(kept);
    }
    this.asked &&= this.isAsked;
    const waiting = kept && participation.waits(kept, now) ? kept : null;
    this.isShown = sticky && !fresh && (!this.asked || waiting !== null) && participation.shows(this.arm, now);
    if (this.isShown) {
      this.choice = waiting;
      if (kept && !waiting) this.keep(null, false);
      return armOf(this.arm);
    }
    const { spec } = participation;
    const given = plainOf(context);
    this.choice = this.decided(given, fresh, now);
    this.warn([...unfit(spec.features, given), ...unfitNumbers(spec, given)]);
    if (this.asked || kept) this.keep(this.asked ? this.choice : null, fresh);
    this.show(this.choice);
    return armOf(this.choice);
  }

  /**
   * Decide. Every choice has coins of its own, so that no sequence of arms can be matched with the coins of a report.
   * @param {Record<string, any>} given @param {boolean} fresh @param {number} now
   */
  decided(given, fresh, now) {
    const { participation, arm } = this;
    if (participation.isOver) return participation.choose(given, fresh ? coins() : arm.final, now);
    const offer = fresh ? null : arm.coins;
    const choice = participation.choose(given, offer ?? coins(), now);
    const isOwn = offer === null || this.client.ledger.uses.claim(this.publications.identity, choice);
    return isOwn ? choice : participation.choose(given, coins(), now);
  }

  /** Tell the developer of values without a place, each once. @param {string[]} messages */
  warn(messages) {
    for (const message of messages.filter((one) => !this.warned.has(one))) {
      this.warned.add(message);
      this.client.tell(message);
    }
  }

  /** Keep the arm of a choice, as long as the experiment lasts. @param {Choice} choice */
  show(choice) {
    const { client, publications, participation } = this;
    this.arm = showing(this.arm, choice, participation.isOver);
    const { identity } = publications;
    const kept = this.keeping.then(() => client.ledger.changeArm(identity, (arm) => showing(arm, choice, participation.isOver)));
    // A page that has got the same coins meanwhile may not have heard of it.
    kept.then(() => client.ledger.uses.tell(identity, choice)).catch(() => {});
    // A person whose device cannot keep it gets an arm anew.
    this.keeping = Promise.allSettled([this.keeping, kept]).then(([one]) => (one.status === "rejected" ? Promise.reject(one.reason) : null));
    this.keeping.catch(() => {});
  }

  /** Keep a choice, or none, unless another one stands. @param {Choice | null} choice @param {boolean} fresh */
  keep(choice, fresh) {
    const { client, participation } = this;
    this.kept = choice;
    const standing = (/** @type {Choice} */ one, /** @type {number} */ now) => participation.waits(one, now) || (!fresh && participation.stands(one, now));
    const change = (/** @type {Choice | null} */ one) => (one && standing(one, client.clock.now()) ? one : choice);
    this.keeping = this.keeping.catch(() => {}).then(() => client.ledger.keep(this.publications.identity, change));
    // `save` tells what went wrong, and `report` what goes wrong then.
    this.keeping.catch(() => {});
  }

  /** Make sure that the choice is kept, on disk: `Client.resume` finds it after a restart. */
  async save() {
    if (!this.choice && this.isShown) return;
    if (!this.choice) throw invalid("choose an arm first", "reward");
    if (this.asked && this.kept === null) this.keep(this.choice, false);
    await this.keeping;
  }

  /** Erase the choice, here and in the ledger: no report is made of it, and the next call of `choose` is free. */
  async forget() {
    await this.keeping.catch(() => {});
    await this.client.ledger.forget(this.publications.identity);
    this.kept = this.choice = null;
    this.arm = offered(null);
    this.asked &&= this.isAsked;
  }

  /**
   * Tell what came of the choice: pay, randomize, seal and send, once. Where the experiment waits for outcomes the device
   * keeps this one, in the place of the one before: the first `join` or `resend` after the window makes the report.
   * @param {number | bigint | boolean | null | Record<string, number | bigint | boolean | null>} reward null where nothing is known; with
   * guardrails `{reward, ...}` by their names
   * @returns {Promise<Outcome>}
   */
  async report(reward) {
    try {
      return await this.reported(reward);
    } catch (error) {
      // Whoever reports again is told so: that is no error of the page.
      if (error instanceof PrivateerError && error.type === "already-reported") return "already-reported";
      throw error;
    }
  }

  /** @param {number | bigint | boolean | null | Record<string, number | bigint | boolean | null>} reward @returns {Promise<Outcome>} */
  async reported(reward) {
    const { client, choice } = this;
    await client.checkServer();
    this.entry = await client.ledger.entry(this.publications.identity);
    if (!this.isOpen) throw alreadyReported();
    const { policy, spec } = this.participation;
    const outcome = plainOf(reward);
    if (choice || this.isShown) this.warn(unfitOutcome(outcome, spec));
    if (!choice && this.isShown) return "not-asked";
    if (!choice) throw invalid("choose an arm first: call session.choose({...})", "reward");
    const values = policy.read(adjusted(outcome, spec, choice.offset ?? 0), spec);
    if (!this.asked) return "not-asked";
    this.participation.check(choice);
    await this.keeping.catch(() => {});
    const standing = await this.told(choice, values);
    if ((standing ?? choice).window) return standing ? "pending" : "not-asked"; // to send now would say when the outcome came
    return this.sent(standing ?? told(choice, values, client.clock.now()));
  }

  /**
   * Keep an outcome with the choice that is kept, or is to be, and return that; null where there is none, or that of another
   * page, of which this outcome says nothing.
   * @param {Choice} choice @param {number[]} values
   */
  async told(choice, values) {
    const now = this.client.clock.now();
    const counts = (/** @type {Choice} */ one) => this.participation.waits(one, now) || isSame(one, choice);
    const kept = await this.client.ledger.keep(this.publications.identity, (standing) => {
      const own = standing ?? (choice.window && !isDue(choice, now) ? choice : null);
      return own && counts(own) ? told(own, values, now) : standing;
    });
    return kept && counts(kept) ? kept : null;
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
      // An outcome that was told before waits already.
      const waiting = (/** @type {Choice | null} */ kept) => (kept && this.participation.waits(kept, client.clock.now()) ? kept : choice);
      if (type === "unavailable") return (await client.ledger.keep(identity, waiting)) ? "pending" : "not-asked";
      if (type !== "deleted") throw error;
      await this.forget();
      return "not-asked";
    }
    await client.ledger.eraseChoice(identity);
    this.kept = this.choice = null;
    return "not-asked";
  }

  /** @param {import("./ledgers/ledger.js").Sealed} sealed */
  async delivered(sealed) {
    const { client, publications } = this;
    this.choice = this.kept = null;
    this.entry = await client.ledger.entry(publications.identity);
    const { outcome, reason } = await client.delivery.until(publications.identity, sealed, client.patience);
    this.refusal = reason;
    return outcome;
  }
}
