// @ts-check
/** A ledger in the browser's database, which all tabs of an origin share: its transactions come one after another. */

import { PrivateerError, unwritable } from "../errors.js";
import { Ledger, makeEntry } from "./ledger.js";
import { newKey } from "./vault.js";

const ENTRIES = "entries";
const KEY = "#key";
const VERSION = 1;
const REMEDY = "Nothing was paid or sent. Private windows and full disks do that: show the page without an experiment";

const NONE = 'there is no IndexedDB here: join in the browser, or give Node a path, with "@privateer/client/node"';

/** What a request gives. @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
const requestResult = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/** @param {unknown} error */
function storageError(error) {
  if (error instanceof PrivateerError) return error;
  const reason = error instanceof DOMException ? ` (${error.name})` : "";
  return unwritable(`this browser does not keep what a report costs${reason}. ${REMEDY}`);
}

/** @param {string} name @returns {Promise<IDBDatabase>} */
async function openDatabase(name) {
  if (!globalThis.indexedDB) throw unwritable(globalThis.document ? `this browser has no IndexedDB here. ${REMEDY}` : NONE);
  const request = indexedDB.open(name, VERSION);
  request.onupgradeneeded = () => request.result.createObjectStore(ENTRIES);
  return requestResult(request);
}

/** @typedef {import("./ledger.js").Entry} Entry */

class IndexedDbStore {
  /** @param {string} name of the database */
  constructor(name) {
    this.name = this.place = name;
    /** @type {Promise<IDBDatabase> | null} */
    this.database = null;
  }

  /**
   * Run one transaction; it is on disk when this returns.
   * @template T @param {IDBTransactionMode} mode @param {(entries: IDBObjectStore) => Promise<T>} use @returns {Promise<T>}
   */
  async transaction(mode, use) {
    try {
      this.database ??= openDatabase(this.name);
      const database = await this.database;
      database.onversionchange = () => this.close();
      const transaction = database.transaction(ENTRIES, mode, { durability: "strict" });
      const completion = new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error);
      });
      completion.catch(() => {});
      const outcome = await use(transaction.objectStore(ENTRIES)).catch((error) => {
        if (transaction.error === null) abort(transaction);
        throw error;
      });
      await completion;
      return outcome;
    } catch (error) {
      if (!(error instanceof PrivateerError)) await this.close();
      throw storageError(error);
    }
  }

  /** The next transaction opens the database anew. */
  async close() {
    const database = await this.database?.catch(() => null);
    database?.close();
    this.database = null;
  }

  /** @param {string} experiment @returns {Promise<Entry | null>} */
  read(experiment) {
    return this.transaction("readonly", async (entries) => (await requestResult(entries.get(experiment))) ?? null);
  }

  /** @template T @param {string} experiment @param {(entry: Entry) => [Entry, T]} change @returns {Promise<T>} */
  change(experiment, change) {
    return this.transaction("readwrite", async (entries) => {
      const [entry, answer] = change((await requestResult(entries.get(experiment))) ?? makeEntry());
      await requestResult(entries.put(entry, experiment));
      return answer;
    });
  }

  /** @returns {Promise<string[]>} */
  async names() {
    const names = await this.transaction("readonly", async (entries) => /** @type {string[]} */ (await requestResult(entries.getAllKeys())));
    return names.filter((name) => name !== KEY);
  }

  /** A key that no script can take out of this browser, beside what it encrypts. @returns {Promise<CryptoKey>} */
  async key() {
    const storedKey = await this.transaction("readonly", (entries) => requestResult(entries.get(KEY)));
    if (storedKey) return storedKey;
    const created = await newKey();
    return this.transaction("readwrite", async (entries) => {
      const other = await requestResult(entries.get(KEY));
      if (!other) await requestResult(entries.put(created, KEY));
      return other ?? created;
    });
  }
}

/** @param {IDBTransaction} transaction */
function abort(transaction) {
  try {
    transaction.abort();
  } catch {
    // It has ended by itself.
  }
}

/** A ledger of this origin: all its pages and tabs share it. */
export class IndexedDbLedger extends Ledger {
  /** @param {string} [name] of the database */
  constructor(name = "privateer") {
    super(new IndexedDbStore(name));
  }

  /**
   * Ask the browser to keep the ledger when disks fill up; it may ask the person. Without it a browser that is short of
   * space may forget what was reported, and report again.
   * @returns {Promise<boolean>} whether it will
   */
  async persist() {
    return (await globalThis.navigator?.storage?.persist?.()) ?? false;
  }
}
