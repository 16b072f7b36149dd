// @ts-check
/** One person's part in one experiment: choose, then report. */

import { readArm, isDue, isSameChoice, withOutcome } from "./choice.js";
import { adjustOutcome, listInputNames, listUnfitNumbers } from "./adjustment.js";
import { PrivateerError, invalid } from "./errors.js";
import { listUnfit } from "./features.js";
import { toPlainValues, unfitOutcome } from "./inputs.js";
import { allows } from "./ledgers/ledger.js";
import { withOfferedCoins, withChoice } from "./ledgers/arm.js";
import { coins } from "./platform.js";
import { isNew, makeReport, findStoredEntry } from "./reports.js";
import { ALLOWED, OUTCOMES, nextState, findState } from "./states.js";

/** @typedef {import("./participation.js").Choice} Choice */
/** @typedef {import("./delivery.js").ReportStatus} ReportStatus */

/** `Client.join` makes it. */
export class Session {
  /**
   * @param {import("./publications.js").Publications} publications @param {import("./publications.js").Published} published
   * @param {import("./ledgers/ledger.js").Entry} entry what the ledger has @param {Choice | null} stored the choice in it
   * @param {boolean} isTime whether the device reports this time: where it reports one time of several, it has drawn which
   * @param {import("./ledgers/arm.js").KeptArm} arm that the person saw last, and the coins of the next choice
   */
  constructor(publications, published, entry, stored, isTime, arm) {
    this.publications = publications;
    this.client = publications.client;
    this.published = published;
    this.entry = entry;
    this.isTime = isTime;
    this.arm = arm;
    /** Of which unfit values the developer knows. @type {Set<string>} */
    this.warned = new Set();
    /** The choice that the ledger has, or is about to. @type {Choice | null} */
    this.kept = stored;
    /** What a report is about. @type {Choice | null} */
    this.choice = stored;
    this.state = this.found;
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
    return listInputNames(this.participation.spec);
  }

  /** Names of the arms. */
  get arms() {
    return this.participation.spec.arms;
  }

  /** Whether the round asks this person. */
  get isAsked() {
    const { participation, entry } = this;
    return participation.asks && (participation.spec.window > 0 || isNew(entry, participation)) && this.isTime;
  }

  /** How far the choice is, by what is kept. */
  get found() {
    const now = this.client.clock.now();
    return findState(this.kept, this.entry.payment, now, this.participation.spec.periodOf(now), () => this.isAsked);
  }

  /** Whether this person is asked for a report: the round asks them, or the device keeps their choice. */
  get reportRequested() {
    return this.may("report");
  }

  /** @param {import("./states.js").Action} action */
  may(action) {
    return ALLOWED[this.state].includes(action);
  }

  /** @param {import("./states.js").ChoiceEvent} event */
  move(event) {
    this.state = nextState(this.state, event);
    if (this.state === "offered" && !this.isAsked) this.move("unasked");
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
    const { participation, kept: stored } = this;
    const now = this.client.clock.now();
    this.state = this.found;
    if (stored && this.reportRequested && (participation.lapsed(stored, now) || (fresh && this.may("show")))) this.move("lapsed");
    if (stored && this.may("show")) {
      this.choice = stored;
      return readArm(stored);
    }
    const due = this.state === "due" ? stored : null;
    const stays = this.may("stay") && sticky && !fresh && participation.shows(this.arm, now);
    const values = toPlainValues(context);
    this.choice = stays ? due : this.decideArm(values, fresh, now);
    if (this.choice && this.may("keep")) {
      this.keep(this.choice, fresh);
      this.move(this.choice.window ? "deferred" : "decided");
    } else if (stored && !due) this.keep(null, fresh);
    if (stays) return readArm(this.arm);
    const { spec } = participation;
    this.warn([...listUnfit(spec.features, values), ...listUnfitNumbers(spec, values)]);
    this.show(/** @type {Choice} */ (this.choice));
    return readArm(/** @type {Choice} */ (this.choice));
  }

  /**
   * Decide. Every choice has coins of its own, so that no sequence of arms can be matched with the coins of a report.
   * @param {Record<string, any>} values @param {boolean} fresh @param {number} now
   */
  decideArm(values, fresh, now) {
    const { participation, arm } = this;
    if (participation.isOver) return participation.choose(values, fresh ? coins() : arm.final, now);
    const offer = fresh ? null : arm.coins;
    const choice = participation.choose(values, offer ?? coins(), now);
    const isOwn = offer === null || this.client.ledger.uses.claim(this.publications.identity, choice);
    return isOwn ? choice : participation.choose(values, coins(), now);
  }

  /** Whether a choice is one whose report is due. @param {Choice} choice */
  waits(choice) {
    const now = this.client.clock.now();
    return isDue(choice, now) && !this.participation.lapsed(choice, now);
  }

  /** Tell the developer of values without a place, each once. @param {string[]} messages */
  warn(messages) {
    for (const message of messages.filter((candidate) => !this.warned.has(candidate))) {
      this.warned.add(message);
      this.client.tell(message);
    }
  }

  /** Keep the arm of a choice, as long as the experiment lasts. @param {Choice} choice */
  show(choice) {
    const { client, publications, participation } = this;
    this.arm = withChoice(this.arm, choice, participation.isOver);
    const { identity } = publications;
    const stored = this.keeping.then(() => client.ledger.changeArm(identity, (arm) => withChoice(arm, choice, participation.isOver)));
    // A page that has got the same coins meanwhile may not have heard of it.
    stored.then(() => client.ledger.uses.tell(identity, choice)).catch(() => {});
    // A person whose device cannot keep it gets an arm anew.
    this.keeping = Promise.allSettled([this.keeping, stored]).then(([candidate]) => (candidate.status === "rejected" ? Promise.reject(candidate.reason) : null));
    this.keeping.catch(() => {});
  }

  /** Keep a choice, or none, unless another one stands. @param {Choice | null} choice @param {boolean} fresh */
  keep(choice, fresh) {
    const { client, participation } = this;
    this.kept = choice;
    const stands = (/** @type {Choice} */ candidate) => (fresh ? this.waits(candidate) : !participation.lapsed(candidate, client.clock.now()));
    const change = (/** @type {Choice | null} */ candidate) => (candidate && stands(candidate) ? candidate : choice);
    this.keeping = this.keeping.catch(() => {}).then(() => client.ledger.keep(this.publications.identity, change));
    // `save` tells what went wrong, and `report` what goes wrong then.
    this.keeping.catch(() => {});
  }

  /** Make sure that the choice is kept, on disk: `Client.resume` finds it after a restart. */
  async save() {
    if (!this.choice && this.reportRequested) throw invalid("choose an arm first", "reward");
    await this.keeping;
  }

  /** Erase the choice, here and in the ledger: no report is made of it, and the next call of `choose` is free. */
  async forget() {
    await this.erase();
    this.move("erased");
  }

  async erase() {
    await this.keeping.catch(() => {});
    await this.client.ledger.forget(this.publications.identity);
    this.kept = this.choice = null;
    this.arm = withOfferedCoins(null);
  }

  /**
   * Tell what came of the choice: pay, randomize, seal and send, once. Where the experiment waits for outcomes the device
   * keeps this one, in the place of the one before: the first `join` or `flush` after the window makes the report.
   * @param {number | bigint | boolean | null | Record<string, number | bigint | boolean | null>} reward null where nothing is known; with
   * guardrails `{reward, ...}` by their names
   * @returns {Promise<ReportStatus>}
   */
  async report(reward) {
    const { client, choice, participation } = this;
    await client.checkServer();
    this.entry = await client.ledger.entry(this.publications.identity);
    const { policy, spec } = participation;
    const now = client.clock.now();
    if (findState(choice, this.entry.payment, now, spec.periodOf(now), () => false) === "delivered") return this.settle("taken");
    const outcome = toPlainValues(reward);
    this.warn(unfitOutcome(outcome, spec));
    if (!this.reportRequested) return /** @type {ReportStatus} */ (OUTCOMES[this.state]);
    if (!choice) throw invalid("choose an arm first", "reward");
    const values = policy.read(adjustOutcome(outcome, spec, choice.offset ?? 0), spec);
    participation.check(choice);
    // What could not be kept when it was chosen is kept now.
    await this.keeping.catch(() => client.ledger.keep(this.publications.identity, (stored) => stored ?? choice));
    const stored = await this.recordOutcome(choice, values);
    if (!stored) return this.dropChoice(choice);
    this.move("outcome");
    return stored.window ? "pending" : this.sendReport(stored); // to send now would say when the outcome came
  }

  /**
   * Keep an outcome with the choice that the report is about, and return that; null where it is not kept any more: the person has
   * erased it, or another page has kept a fresh one, of which this outcome says nothing.
   * @param {Choice} choice @param {number[]} values
   */
  async recordOutcome(choice, values) {
    const now = this.client.clock.now();
    const counts = (/** @type {Choice} */ candidate) => this.waits(candidate) || isSameChoice(candidate, choice);
    const stored = await this.client.ledger.keep(this.publications.identity, (candidate) => (candidate && counts(candidate) ? withOutcome(candidate, values, now) : candidate));
    if (!stored || !counts(stored)) return null;
    this.kept = stored;
    return stored;
  }

  /** Report to the open round, or wait if nobody says which one that is. @param {Choice} choice @returns {Promise<ReportStatus>} */
  async sendReport(choice) {
    const { client, publications } = this;
    try {
      const opened = await publications.openPublication(this.published).catch(ignoreUnavailable);
      const report = opened ? await makeReport(publications, choice, opened.participation) : (await findStoredEntry(publications, choice)) ? "declined" : "erased";
      this.published = opened ?? this.published; // what comes next follows the open round, unless its terms are refused
      if (report === "erased") return await this.dropChoice(choice);
      if (report === "expired") await client.ledger.eraseChoice(publications.identity, choice);
      return typeof report === "string" ? this.settle(report) : await this.delivered(report);
    } catch (error) {
      const type = error instanceof PrivateerError ? error.type : "";
      // Another page has reported meanwhile: that is no error of this one.
      if (type === "already-reported") return this.settle("taken");
      if (type !== "deleted") throw error;
      await this.erase();
      return this.settle("deleted");
    }
  }

  /** Have no choice any more, unless it waits. @param {import("./states.js").ChoiceEvent} event that came to one whose report is due */
  settle(event) {
    if (event !== "declined") this.choice = this.kept = null;
    this.state = nextState("due", event);
    return /** @type {ReportStatus} */ (OUTCOMES[this.state]);
  }

  /** Go on without a choice that the person has erased, or another page has reported on. @param {Choice} choice @returns {Promise<ReportStatus>} */
  async dropChoice(choice) {
    this.entry = await this.client.ledger.entry(this.publications.identity);
    const { payment } = this.entry;
    if (payment && !allows(payment, choice.period)) return this.settle("taken");
    if (this.kept && isSameChoice(this.kept, choice)) this.choice = this.kept = null;
    this.state = this.found;
    return "not-requested";
  }

  /** @param {import("./ledgers/ledger.js").Sealed} sealed */
  async delivered(sealed) {
    const { client, publications } = this;
    this.settle("taken");
    this.entry = await client.ledger.entry(publications.identity);
    const { outcome, reason } = await client.delivery.until(publications.identity, sealed, client.retryTimeout);
    this.refusal = reason;
    return outcome;
  }
}

/** Nothing, where nobody answers. @param {any} error */
function ignoreUnavailable(error) {
  if (error instanceof PrivateerError && error.type === "unavailable") return null;
  throw error;
}
