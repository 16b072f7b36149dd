// @ts-check
/** A ledger in memory, for tests: what it forgets could be reported twice. */

import { Ledger, makeEntry } from "./ledger.js";
import { newKey } from "./vault.js";

/** @implements {Store} @typedef {import("./ledger.js").Store} Store */
class MemoryStore {
  constructor() {
    /** @type {Map<string, import("./ledger.js").Entry>} */
    this.entries = new Map();
    /** @type {Promise<CryptoKey> | null} */
    this.made = null;
  }

  /** @param {string} experiment */
  async read(experiment) {
    return this.entries.get(experiment) ?? null;
  }

  /** @template T @param {string} experiment @param {(entry: import("./ledger.js").Entry) => [import("./ledger.js").Entry, T]} change */
  async change(experiment, change) {
    const [entry, answer] = change(this.entries.get(experiment) ?? makeEntry());
    this.entries.set(experiment, entry);
    return answer;
  }

  key() {
    return (this.made ??= newKey());
  }

  async names() {
    return [...this.entries.keys()];
  }
}

export class MemoryLedger extends Ledger {
  constructor() {
    super(new MemoryStore());
  }
}
