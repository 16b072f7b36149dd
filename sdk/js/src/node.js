// @ts-check
/** Privateer in Node: the same, with a ledger in files, and with one of many people in a database. */

import { Client as DeviceClient } from "./client.js";
import { invalid } from "./errors.js";
import { FileLedger } from "./ledgers/file.js";
import { Ledger } from "./ledgers/ledger.js";
import { PeopleLedger } from "./ledgers/people.js";
import { People } from "./people.js";

export * from "./index.js";
export { FileLedger, PeopleLedger };

const many = () => {
  throw invalid("is one of many people: client.person(key) is the client of one of them", "ledger");
};

/** A client whose ledger may be a path, or that of many people. */
export class Client extends DeviceClient {
  /** @param {string} server @param {Omit<import("./client.js").Options, "ledger"> & {ledger?: Ledger | PeopleLedger | string}} [options] */
  constructor(server, { ledger, ...options } = {}) {
    const isMany = ledger instanceof PeopleLedger;
    const own = isMany ? new Ledger({ read: many, change: many, names: many, key: many }) : typeof ledger === "string" ? new FileLedger(ledger) : ledger;
    super(server, { ...options, ledger: own });
    /** @type {People | null} */
    this.people = isMany ? new People(server, options, ledger) : null;
  }

  /**
   * The client of one of many people, made anew in each request. A key that is a number is the person of its text.
   * @param {string | number} key what the application calls them; it is not sent
   * @param {{attest?: import("./tokens/tokens.js").Attest}} [options] attest: what the backend signed for this person
   */
  async person(key, options) {
    return this.everybody().person(key, options);
  }

  /** Make what is due, and send what waits, of everybody. @returns {Promise<Record<string, number>>} the number of each outcome */
  async resendPeople() {
    return this.everybody().resend(this.patience);
  }

  everybody() {
    if (this.people) return this.people;
    throw invalid("is one person's: new Client(server, { ledger: new PeopleLedger(\"people.db\") }) decides for many", "ledger");
  }
}
