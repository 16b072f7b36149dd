// @ts-check
/** Privateer in Node: the same, with a ledger in files, and with one of many people in a database. */

import { Client as DeviceClient } from "./client.js";
import { invalid } from "./errors.js";
import { Issuer } from "./issuer.js";
import { FileLedger } from "./ledgers/file.js";
import { Ledger } from "./ledgers/ledger.js";
import { PeopleLedger } from "./ledgers/people.js";
import { People } from "./people.js";

/** `attest` goes with an issuer's address.
 * @typedef {Omit<import("./client.js").Options, "issuer" | "ledger"> & {ledger?: Ledger | PeopleLedger | string, issuer?: Issuer | string,
 *   attest?: import("./issuer.js").Attest}} Options */

export * from "./index.js";
export { FileLedger, Issuer, PeopleLedger };

const refuseMany = () => {
  throw invalid("is one of many people: client.person(key) is the client of one of them", "ledger");
};

/** A client whose ledger may be a path, or that of many people, and whose issuer an address. */
export class Client extends DeviceClient {
  /** @param {string} server @param {Options} [options] */
  constructor(server, { ledger, issuer, attest, ...otherOptions } = {}) {
    const isMany = ledger instanceof PeopleLedger;
    const ownLedger = isMany ? new Ledger({ read: refuseMany, change: refuseMany, names: refuseMany, key: refuseMany }) : typeof ledger === "string" ? new FileLedger(ledger) : ledger;
    const options = { ...otherOptions, issuer: typeof issuer === "string" ? new Issuer(issuer, { attest }) : issuer };
    super(server, { ...options, ledger: ownLedger });
    /** @type {People | null} */
    this.people = isMany ? new People(server, options, ledger) : null;
  }

  /**
   * The client of one of many people, made anew in each request. A key that is a number is the person of its text.
   * @param {string | number} key what the application calls them; it is not sent
   * @param {{attest?: import("./issuer.js").Attest}} [options] attest: what the backend signed for this person
   */
  async person(key, { attest } = {}) {
    const issuer = this.issuer && attest ? new Issuer(this.issuer.url, { attest }) : this.issuer;
    return this.everybody().person(key, { issuer });
  }

  /** Make what is due, and send what waits, of everybody. @returns {Promise<Record<string, number>>} the number of each outcome */
  async flushPeople() {
    return this.everybody().flush(this.retryTimeout);
  }

  everybody() {
    if (this.people) return this.people;
    throw invalid("is one person's: new Client(server, { ledger: new PeopleLedger(\"people.db\") }) decides for many", "ledger");
  }
}
