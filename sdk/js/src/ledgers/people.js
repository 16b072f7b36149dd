// @ts-check
/** The ledgers of many people in one SQLite file, for Node. Several processes on one machine may share it. */

import { resolve } from "node:path";

import { PrivateerError, invalid, unwritable } from "../errors.js";
import { DatabaseThread } from "./database-thread.js";
import { HASH_SIZE, hashKeyed } from "./database.js";
import { KEY_SIZE } from "./file.js";
import { Ledger, makeEntry } from "./ledger.js";

const TRIES = 1000;

/** @typedef {import("./ledger.js").Entry} Entry */
/** @typedef {import("./database.js").Bodies} Bodies */

/** The entries of one person, and everybody's. */
class PersonStore {
  /** @param {PeopleLedger} people @param {() => string} identify names the person in the database, once that is open */
  constructor(people, identify) {
    this.people = people;
    this.identify = identify;
    /** @type {Promise<CryptoKey> | null} */
    this.imported = null;
  }

  /** @returns {Promise<string>} */
  async person() {
    await this.people.thread();
    return this.identify();
  }

  key() {
    return (this.imported ??= this.person().then((person) => this.people.cipher(person)));
  }

  /** @param {string} experiment @returns {Promise<Entry | null>} */
  async read(experiment) {
    return this.people.parse(experiment, await this.people.ask("read", await this.person(), experiment));
  }

  async names() {
    return this.people.ask("names", await this.person());
  }

  /**
   * Compare and set: the function may be called again, where something else has come to be kept meanwhile.
   * @template T @param {string} experiment @param {(entry: Entry) => [Entry, T]} change @returns {Promise<T>}
   */
  async change(experiment, change) {
    const person = await this.person();
    /** @type {Bodies | null} */
    let before = await this.people.ask("read", person, experiment);
    for (let tries = 0; before && tries < TRIES; tries++) {
      const stored = this.people.parse(experiment, before) ?? makeEntry();
      const [entry, result] = change(stored);
      const after = formatEntry(entry, stored, before);
      if (after.person === before.person && after.common === before.common) return result;
      const isOpen = entry.choice !== null || entry.waiting.length > 0;
      const isForgotten = stored.shown !== null && entry.shown === null;
      before = await this.people.ask("swap", { person, experiment, before, after, isOpen, isPaid: entry.payment !== stored.payment, isForgotten });
      if (!before) return result;
    }
    throw unwritable("the ledger changes all the time");
  }
}

/** The texts of an entry: the person's, and everybody's, which is seldom another one. @param {Entry} entry @param {Entry} stored
 * @param {Bodies} before @returns {Bodies} */
function formatEntry({ publication, known: knownServer, evidence, ...ownPart }, stored, before) {
  const isCommon = publication === stored.publication && knownServer === stored.known && evidence === stored.evidence;
  return { person: formatFields(ownPart), common: isCommon ? before.common : formatFields({ publication, known: knownServer, evidence }) };
}

/** What an entry has, without what it has not; null if it has nothing. @param {Partial<Entry>} entry */
function formatFields(entry) {
  const fields = Object.entries(entry).filter(([, value]) => value !== null && /** @type {any} */ (value).length !== 0);
  const encode = (/** @type {string} */ _, /** @type {any} */ value) => (value instanceof Uint8Array ? { bytes: Buffer.from(value).toString("base64") } : value);
  return fields.length ? JSON.stringify(Object.fromEntries(fields), encode) : null;
}

/** @param {string | null} body @returns {Partial<Entry> | null} */
const parseFields = (body) => body && restoreBytes(JSON.parse(body));

/** The same value with its bytes, which JSON has as text. A reviver would be called for each number, too. @param {any} value @returns {any} */
function restoreBytes(value) {
  if (typeof value?.bytes === "string") return new Uint8Array(Buffer.from(value.bytes, "base64"));
  if (typeof value === "object") for (const key in value) value[key] = restoreBytes(value[key]);
  return value;
}

/** The ledgers of the people for whom a process decides: `client.person(key)` uses them. */
export class PeopleLedger {
  /**
   * @param {string} path of the database; its folder must be there
   * @param {{key?: Uint8Array<ArrayBuffer>}} [options] key: 32 bytes by which people are known, and choices encrypted; by default
   * those in a file beside the database, made when it is first needed
   */
  constructor(path, { key } = {}) {
    if (key && key.length !== KEY_SIZE) throw invalid("must be 32 bytes: crypto.getRandomValues(new Uint8Array(32)), once", "key");
    this.path = resolve(path);
    this.secret = key ?? null;
    /** @type {Promise<DatabaseThread> | null} */
    this.opening = null;
    /** What everybody has of an experiment, as it was read last. @type {Map<string, {body: string | null, fields: Partial<Entry> | null}>} */
    this.common = new Map();
  }

  /** The ledger of one person. @param {string} key what the application calls them */
  of(key) {
    return new Ledger(new PersonStore(this, () => Buffer.from(this.hash("person", key.normalize("NFC")).subarray(0, HASH_SIZE)).toString("hex")));
  }

  /** Ledgers of people whose choices or reports wait. @returns {Promise<Ledger[]>} */
  async waiting() {
    const people = /** @type {string[]} */ (await this.ask("waiting"));
    return people.map((person) => new Ledger(new PersonStore(this, () => person)));
  }

  /** @param {string} purpose @param {string} value */
  hash(purpose, value) {
    return hashKeyed(/** @type {Uint8Array} */ (this.secret), purpose, value);
  }

  /** What encrypts the choices of one person: none can be put in the place of another's. @param {string} person @returns {Promise<CryptoKey>} */
  cipher(person) {
    return crypto.subtle.importKey("raw", new Uint8Array(this.hash("cipher", person)), "AES-GCM", false, ["encrypt", "decrypt"]);
  }

  /** @param {string} experiment @param {Bodies} bodies @returns {Entry | null} */
  parse(experiment, { person, common }) {
    if (this.common.get(experiment)?.body !== common) this.common.set(experiment, { body: common, fields: parseFields(common) });
    return person || common ? { ...makeEntry(), ...parseFields(person), ...this.common.get(experiment)?.fields } : null;
  }

  /** Ask the thread that has the database open. @param {import("./database-worker.js").Action} action @param {unknown[]} values
   * @returns {Promise<any>} */
  async ask(action, ...values) {
    const thread = await this.thread();
    return thread.ask(action, ...values).catch((error) => this.refuse(error));
  }

  /** The thread that has the database open, which is opened when it is first needed. @returns {Promise<DatabaseThread>} */
  async thread() {
    const opening = (this.opening ??= this.open());
    const thread = await opening;
    if (!thread.isOver) return thread;
    if (this.opening === opening) this.opening = null; // otherwise another request has begun the next one
    return this.thread();
  }

  /** @returns {Promise<DatabaseThread>} */
  async open() {
    const thread = new DatabaseThread(this.path, this.secret);
    try {
      this.secret = await thread.ask("open");
      return thread;
    } catch (error) {
      this.opening = null;
      await thread.worker.terminate();
      return this.refuse(error);
    }
  }

  /** @param {any} error @returns {never} */
  refuse(error) {
    if (error instanceof PrivateerError) throw error;
    const state = error.isUnknown ? "flush() sends what was paid before" : "nothing was paid or sent";
    throw unwritable(`cannot use ${this.path} (${error.code ?? "it is damaged, or of another program"}): ${state}`);
  }

  /** Close the database, and end its thread. */
  async close() {
    const thread = await this.opening;
    this.opening = null;
    await thread?.close();
  }
}
