// @ts-check
/** Clients of the people for whom one process decides: they share publications, each has a ledger of its own. */

import { areEqualBytes } from "./bytes.js";
import { readArm } from "./choice.js";
import { Client } from "./client.js";
import { PrivateerError, invalid, unavailable } from "./errors.js";
import { ledgerTimeoutMessage } from "./exchange.js";
import { WITHIN, awaitUntil, requireDefault } from "./in-time.js";
import { drawBelow } from "./platform.js";
import { Publications } from "./publications.js";

/** Seconds for which everybody follows what one person has fetched. */
const FRESH = 1;

/** @typedef {import("./publications.js").Published} Published */
/** @typedef {import("./ledgers/people.js").PeopleLedger} PeopleLedger */
/** @typedef {import("./delivery.js").ReportStatus} ReportStatus */

/** Publications that were fetched and checked for one person, and serve everybody. */
class Shared {
  constructor() {
    /** @type {Map<string, {published: Published, until: number}>} */
    this.latest = new Map();
    /** @type {Map<string, Promise<Published>>} */
    this.coming = new Map();
    /** @type {Map<string, {body: Uint8Array, published: Published}>} */
    this.kept = new Map();
  }

  /** @param {string} name @param {number} now @param {(known: Published | null) => Promise<Published>} fetch @returns {Promise<Published>} */
  get(name, now, fetch) {
    const cached = this.latest.get(name);
    if (cached && now < cached.until) return Promise.resolve(cached.published);
    const coming = this.coming.get(name);
    if (coming) return coming;
    const going = fetch(cached?.published ?? null)
      .then((published) => {
        this.latest.set(name, { published, until: now + FRESH });
        return published;
      })
      .finally(() => this.coming.delete(name));
    this.coming.set(name, going);
    return going;
  }
}

/** The publications of one experiment, as everybody follows them. */
class SharedPublications extends Publications {
  /** @param {Client} client @param {string} name @param {Shared} shared */
  constructor(client, name, shared) {
    super(client, name);
    this.shared = shared;
    /** People with other limits may take another tier. */
    this.use = `${name} ${JSON.stringify(client.limits)}`;
    this.keptUse = `${this.identity} ${this.use}`;
  }

  /** @param {import("./participation.js").Participation | null} cached @param {boolean} [choosing] @returns {Promise<Published>} */
  fetched(cached, choosing = true) {
    const before = (/** @type {Published | null} */ latest) => (choosing ? null : (latest?.participation ?? cached));
    const fetch = (/** @type {Published | null} */ latest) => super.fetched(before(latest), choosing);
    return this.shared.get(`${choosing ? "joins" : "reports"} ${this.use}`, this.client.clock.monotonic(), fetch);
  }

  /** @returns {Promise<Published | null>} */
  async stored() {
    const { publication } = await this.client.ledger.entry(this.identity);
    const cached = this.shared.kept.get(this.keptUse);
    if (publication && cached && areEqualBytes(publication, cached.body)) return cached.published;
    const published = await super.stored();
    if (publication && published) this.shared.kept.set(this.keptUse, { body: publication, published });
    return published;
  }
}

/** The client of one of many people. */
export class Person extends Client {
  /** @param {string} server @param {import("./client.js").Options} options @param {Shared} shared */
  constructor(server, options, shared) {
    super(server, options);
    this.shared = shared;
  }

  /** @param {string} name */
  publications(name) {
    return new SharedPublications(this, name, this.shared);
  }

  /**
   * This person's arm, kept when it is here: of several requests at once, each gets the one that is kept. A ledger that does not
   * keep it in time gives the default.
   * @param {string} name @param {Record<string, any>} context @param {{default: any, within?: number, sticky?: boolean}} options
   * @returns {Promise<import("./in-time.js").Arm>}
   */
  async arm(name, context, options) {
    requireDefault(options);
    const { within = WITHIN } = options;
    const end = performance.now() / 1000 + within;
    try {
      const session = await this.inTime.session(name, within);
      const arm = session.choose(context, { sticky: options.sticky });
      const stored = await this.confirmChoice(session, end, within);
      return { name: stored ? readArm(stored) : arm, fallback: null, session, report: (reward) => session.report(reward) };
    } catch (error) {
      return this.inTime.showDefault(name, options.default, error);
    }
  }

  /**
   * What the ledger keeps once a session has chosen. A choice that is kept later stays: another request may have shown its arm.
   * @param {import("./session.js").Session} session @param {number} end in seconds @param {number} within seconds for the call
   */
  async confirmChoice(session, end, within) {
    const { identity } = session.publications;
    const keeping = session.save().then(async () => ({ stored: await this.ledger.choice(identity) }));
    const confirmed = await awaitUntil(keeping, end - performance.now() / 1000);
    if (confirmed) return confirmed.stored;
    throw unavailable(ledgerTimeoutMessage(within));
  }

  /** Report on the choice that the ledger keeps. @param {string} name of the experiment @param {any} reward @returns {Promise<ReportStatus>} */
  async report(name, reward) {
    try {
      return await (await this.resume(name)).report(reward);
    } catch (error) {
      if (error instanceof PrivateerError && error.type === "already-reported") return "already-reported";
      throw error;
    }
  }
}

/** All people for whom a process decides at one server. */
export class People {
  /** @param {string} server @param {import("./client.js").Options} options @param {PeopleLedger} ledger */
  constructor(server, options, ledger) {
    this.server = server;
    this.options = options;
    this.ledger = ledger;
    this.shared = new Shared();
  }

  /** @param {string | number} key @param {Partial<import("./client.js").Options>} [options] @returns {Promise<Person>} */
  async person(key, options) {
    // An object, or nothing, has one text for everybody, and everybody would be one person.
    if (typeof key !== "string" && !Number.isInteger(key)) throw invalid("must be a text or a whole number", "key");
    if (key === "") throw invalid("is empty: name the person", "key");
    return this.at(this.ledger.of(`${key}`), options);
  }

  /** @param {import("./ledgers/ledger.js").Ledger} ledger @param {Partial<import("./client.js").Options>} [options] */
  at(ledger, options) {
    return new Person(this.server, { ...this.options, ...options, ledger }, this.shared);
  }

  /**
   * Make what is due and send what waits, person by person in an order that is drawn anew each time.
   * @param {number} retryTimeout seconds without any answer after which it stops
   * @returns {Promise<Record<string, number>>} how many reports had each outcome
   */
  async flush(retryTimeout) {
    /** @type {Record<string, number>} */
    const counts = {};
    const ledgers = await this.ledger.waiting();
    let heard = performance.now();
    while (ledgers.length && performance.now() - heard < 1000 * retryTimeout) {
      const [ledger] = ledgers.splice(drawBelow(ledgers.length), 1);
      const outcomes = Object.values(await this.at(ledger).flush());
      for (const outcome of outcomes) counts[outcome] = (counts[outcome] ?? 0) + 1;
      if (outcomes.some((outcome) => outcome !== "pending")) heard = performance.now();
    }
    return counts;
  }
}
