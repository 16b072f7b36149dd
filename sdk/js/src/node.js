// @ts-check
/** Privateer on a device, in Node: the same, and a ledger in files. */

import { Client as DeviceClient } from "./client.js";
import { FileLedger } from "./ledgers/file.js";

export * from "./index.js";
export { FileLedger };

/** A client whose ledger may be a path. */
export class Client extends DeviceClient {
  /** @param {string} server @param {import("./client.js").Options} [options] */
  constructor(server, options = {}) {
    const { ledger } = options;
    super(server, { ...options, ledger: typeof ledger === "string" ? new FileLedger(ledger) : ledger });
  }
}
