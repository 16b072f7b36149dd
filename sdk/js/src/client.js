// @ts-check
/** The SDK's entry: a client of one server, and of the shuffler and the issuer that the application trusts. */

import { Delivery } from "./delivery.js";
import { PrivateerError, alreadyReported, invalid, unavailable } from "./errors.js";
import { normalizeUrl } from "./exchange.js";
import { InTime } from "./in-time.js";
import { withOfferedCoins } from "./ledgers/arm.js";
import { IndexedDbLedger } from "./ledgers/indexeddb.js";
import { Ledger } from "./ledgers/ledger.js";
import { contradictionError, findContradiction } from "./log.js";
import { drawBelow, systemClock } from "./platform.js";
import { Publications } from "./publications.js";
import { settleReports } from "./reports.js";
import { Session } from "./session.js";
import { LIMITS } from "./verification.js";

const ISSUER = 'must be new Issuer("https://...") of "@privateer/client/issuer"';
const SECONDS = "must be a number of seconds: 10 are usual";

/** @typedef {import("./delivery.js").ReportStatus} ReportStatus */

/**
 * @typedef {object} Options
 * @property {Ledger | string} [ledger] what this device has paid for; by default the origin's `IndexedDbLedger`. A text is the
 * name of one, in Node the path of a `FileLedger`
 * @property {string} [shuffler] address of the shuffler that the application trusts; no server can name one
 * @property {import("./issuer.js").Issuer} [issuer] of upload tokens, where reports need some
 * @property {Partial<import("./verification.js").Limits>} [limits] what this device accepts
 * @property {number} [timeout] seconds for a request
 * @property {number} [retryTimeout] seconds for which `report` tries to send
 * @property {(message: string) => void} [warn] gets a message, once, for a feature whose value is of no use, or where tokens fail
 * @property {string[]} [serverKeys] public keys of the server (64 hexadecimal digits); by default the first that it shows
 * @property {import("./platform.js").Clock} [clock]
 */

export class Client {
  /** @param {string} server address of the learning server @param {Options} [options] */
  constructor(server, { ledger, shuffler, issuer, limits = {}, timeout = 10, retryTimeout = 10, warn = console.warn, serverKeys = [], clock = systemClock } = {}) {
    this.server = normalizeUrl(server, "server");
    this.shuffler = shuffler === undefined ? undefined : normalizeUrl(shuffler, "shuffler");
    if (typeof issuer === "string") throw invalid(ISSUER, "issuer");
    this.issuer = issuer;
    this.ledger = ledger instanceof Ledger ? ledger : new IndexedDbLedger(ledger);
    /** @type {import("./verification.js").Limits} */
    this.limits = { ...LIMITS, ...limits };
    for (const name of Object.keys(limits)) if (!(name in LIMITS)) throw invalid(`limits are ${Object.keys(LIMITS).join(", ")}`, `limits.${name}`);
    if (!(timeout > 0 && timeout < Infinity)) throw invalid(SECONDS, "timeout");
    if (!(retryTimeout >= 0 && retryTimeout < Infinity)) throw invalid(SECONDS, "retryTimeout");
    this.serverKeys = serverKeys;
    this.timeout = timeout;
    this.retryTimeout = retryTimeout;
    this.clock = clock;
    this.delivery = new Delivery(this.ledger, timeout, clock);
    this.tell = warn;
    /** Evidence that the server contradicted itself, as far as this page knows. @type {string | null} */
    this.contradiction = null;
    this.inTime = new InTime(this);
  }

  /**
   * This person's arm, or the default if there is none in time: never an error. A server that takes longer serves the next
   * call; a policy that the device keeps serves this one.
   * @param {string} name of the experiment @param {Record<string, any>} context a value for each feature
   * @param {{default: any, within?: number, sticky?: boolean}} options default: what to show if there is no arm. within: seconds for
   * the call, .3 by default. sticky: as `Session.choose` has it
   * @returns {Promise<import("./in-time.js").Arm>}
   */
  arm(name, context, options) {
    return this.inTime.arm(name, context, options);
  }

  /**
   * Fetch the policy of an experiment, check it, and start this person's session. Before, make the reports that are due,
   * and send once those that wait. If the server does not answer, the session follows the last policy that was checked.
   * Where the application names an issuer, also get an upload token for each report that this device may still make.
   * @param {string} name
   */
  async join(name) {
    const publications = this.publications(name);
    const end = this.clock.monotonic() + this.timeout;
    await publications.reconciled();
    await this.settle(end);
    for (const [identity, sealed] of await this.waiting()) {
      if (this.clock.monotonic() < end) await this.delivery.once(identity, sealed);
    }
    const published = await publications.session().catch(async (error) => {
      if (error instanceof PrivateerError && error.type === "deleted") await this.ledger.forget(publications.identity);
      throw error;
    });
    const session = await this.session(publications, published);
    await this.issuer?.fillAhead(publications, published, end);
    return session;
  }

  /**
   * Get the upload tokens for an experiment ahead, for instance a day before the person is asked to choose: the longer
   * before a report, the less its time tells whoever knows when tokens were issued.
   * @param {string} name @returns {Promise<number>} how many are left for reports
   */
  async fetchTokens(name) {
    if (!this.issuer) throw invalid(ISSUER, "issuer");
    return this.issuer.fetch(this.publications(name));
  }

  /** The session of a choice that the device keeps, after a restart. It asks nobody. @param {string} name */
  async resume(name) {
    const publications = this.publications(name);
    await this.checkServer();
    const choice = await this.ledger.choice(publications.identity);
    const { payment } = await this.ledger.entry(publications.identity);
    if (!choice && payment && payment.made >= payment.reports) throw alreadyReported();
    if (!choice) throw invalid("this device has no stored choice: join the experiment, and choose", "name");
    const published = await publications.stored();
    if (!published) throw unavailable("this device has no stored policy: join the experiment, the choice is kept");
    return this.session(publications, published);
  }

  /** Make what is due, and send again what nobody has answered for good. @returns {Promise<Record<string, ReportStatus>>} by experiment */
  async flush() {
    await this.checkServer();
    const outcomes = await this.settle(Infinity);
    /** @type {import("./issuer.js").Sent[]} */
    const reports = [];
    for (const [identity, sealed] of await this.waiting()) {
      const { outcome, reason } = await this.delivery.once(identity, sealed);
      outcomes[parseName(identity)] = outcome;
      reports.push([identity, sealed, reason]);
    }
    await this.issuer?.replenish(this, reports);
    return outcomes;
  }

  /** A session by the publication that is kept; null without one. @param {string} name */
  async offline(name) {
    const publications = this.publications(name);
    await this.checkServer();
    const published = await publications.stored();
    return published && this.session(publications, published);
  }

  /** @param {Publications} publications @param {import("./publications.js").Published} published */
  async session(publications, published) {
    const { participation } = published;
    if (participation.isOpen) publications.endpoint(participation);
    // Sessions that join at once have the same coins, and so choose alike; coins that are used up leave a choice that is read next.
    this.ledger.uses.listen();
    const arm = await this.ledger.changeArm(publications.identity, withOfferedCoins);
    const entry = await this.ledger.entry(publications.identity);
    const storedChoice = await this.ledger.choice(publications.identity);
    const isTime = await this.isTime(publications.identity, participation, entry);
    return new Session(publications, published, entry, storedChoice, isTime, arm);
  }

  /** Whether the device reports this time: who reports one time of several comes only where they are asked, and has not reported.
   * @param {string} identity @param {import("./participation.js").Participation} participation @param {import("./ledgers/ledger.js").Entry} entry */
  async isTime(identity, { asks, spec }, { payment }) {
    if (spec.times === spec.reports) return true;
    if (!asks || payment !== null) return false;
    return this.ledger.draw(identity, spec.times, spec.period, spec.periodOf(this.clock.now()));
  }

  /** Make the reports that are due. @param {number} end of the monotonic clock */
  async settle(end) {
    /** @type {Record<string, ReportStatus>} */
    const outcomes = {};
    for (const identity of await this.ownLedger()) {
      if (this.clock.monotonic() >= end) break;
      const outcome = await settleReports(this.publications(parseName(identity)));
      if (outcome) outcomes[parseName(identity)] = outcome;
    }
    return outcomes;
  }

  /** Reports for this client's endpoints that nobody has answered. */
  async waiting() {
    const isOwnEndpoint = (/** @type {string} */ endpoint) => [this.server, this.shuffler].some((address) => address && endpoint.startsWith(`${address}/`));
    /** @type {[string, import("./ledgers/ledger.js").Sealed][]} */
    const uploads = [];
    for (const identity of await this.ownLedger()) {
      const { waiting } = await this.ledger.entry(identity);
      uploads.push(...waiting.filter(({ endpoint }) => isOwnEndpoint(endpoint)).map((upload) => /** @type {typeof uploads[0]} */ ([identity, upload])));
    }
    return uploads;
  }

  /** Experiments of this server in the ledger, in random order: one that hangs must not starve the rest. */
  async ownLedger() {
    const names = (await this.ledger.names()).filter((identity) => this.identity(parseName(identity)) === identity);
    for (let i = names.length - 1; i > 0; i--) {
      const j = drawBelow(i + 1);
      [names[i], names[j]] = [names[j], names[i]];
    }
    return names;
  }

  /** The last signed head of the server's log, for comparing with other devices. @returns {Promise<string | null>} */
  async head() {
    return (await this.ledger.readKnownServer(this.server))?.head ?? null;
  }

  /** What shows that the server contradicted itself, as JSON; null if nothing does. @returns {Promise<string | null>} */
  evidence() {
    return this.ledger.evidence(this.server);
  }

  /** Refuse the server if the device holds evidence that it contradicted itself. */
  async checkServer() {
    const evidence = await this.evidence();
    this.contradiction = findContradiction(evidence) ? evidence : null;
    this.refuse();
  }

  /** The same, by what this page knows: `choose` cannot wait for the ledger. */
  refuse() {
    if (this.contradiction !== null) throw contradictionError(this.contradiction, this.server);
  }

  /** The publications of an experiment. @param {string} name */
  publications(name) {
    return new Publications(this, name);
  }

  /** @param {string} name */
  identity(name) {
    return `${this.server}/${name}`;
  }
}

/** @param {string} identity */
export const parseName = (identity) => identity.slice(identity.lastIndexOf("/") + 1);
