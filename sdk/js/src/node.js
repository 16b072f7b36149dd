// @ts-check
/** Privateer on a device, in Node: the same, and a ledger in files. */

import { Client as DeviceClient } from "./client.js";
import { Issuer } from "./issuer.js";
import { FileLedger } from "./ledgers/file.js";

/** @typedef {Omit<import("./client.js").Options, "issuer"> & {issuer?: Issuer | string, attest?: import("./issuer.js").Attest}} Options
 * `attest` goes with an issuer's address */

export * from "./index.js";
export { FileLedger, Issuer };

/** A client whose ledger may be a path, and whose issuer an address. */
export class Client extends DeviceClient {
  /** @param {string} server @param {Options} [options] */
  constructor(server, { ledger, issuer, attest, ...more } = {}) {
    super(server, {
      ...more,
      ledger: typeof ledger === "string" ? new FileLedger(ledger) : ledger,
      issuer: typeof issuer === "string" ? new Issuer(issuer, { attest }) : issuer,
    });
  }
}
