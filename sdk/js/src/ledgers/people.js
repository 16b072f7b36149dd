// @ts-check
/** The ledgers of many people in one SQLite file, for Node. Several processes on one machine may share it. */

import { createHmac, timingSafeEqual } from "node:crypto";
import { chmodSync, closeSync, existsSync, openSync } from "node:fs";
import { dirname, resolve } from "node:path";

import { PrivateerError, invalid, unsupported, unwritable } from "../errors.js";
import { KEY_SIZE, flushPath, loadOrCreateKey } from "./file.js";
import { Ledger, makeEntry } from "./ledger.js";

/** Whose entries are everybody's: publications, what is known of servers, and the mark of the key. */
const NOBODY = Buffer.alloc(0);
const MARK = "#key";
const HASH_SIZE = 16;
const SCHEMA = `
PRAGMA busy_timeout = 10000;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS entries (
  person BLOB NOT NULL, experiment TEXT NOT NULL, body TEXT NOT NULL, is_open INTEGER NOT NULL, PRIMARY KEY (person, experiment)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_entries ON entries (person) WHERE is_open;
`;

/** @typedef {import("./ledger.js").Entry} Entry */
/** @typedef {{get(...values: unknown[]): any, all(...values: unknown[]): any[], run(...values: unknown[]): unknown}} Statement */
/** @typedef {{exec(sql: string): unknown, prepare(sql: string): Statement, close(): void}} Database */

/** What opens a database: Node's own, or the package better-sqlite3 where Node has none. @returns {Promise<new (path: string) => Database>} */
async function loadDriver() {
  for (const [name, kind] of [["node:sqlite", "DatabaseSync"], ["better-sqlite3", "default"]]) {
    try {
      const { [kind]: Driver } = await import(name);
      new Driver(":memory:").close(); // the package may be there, and not be built
      return Driver;
    } catch {
      // The next one may be there.
    }
  }
  throw unsupported("needs Node 22.13 or newer, or the package better-sqlite3, built", "ledger");
}

/** The entries of one person, and everybody's. */
class PersonStore {
  /** @param {PeopleLedger} people @param {Uint8Array} person */
  constructor(people, person) {
    this.people = people;
    this.person = person;
    /** @type {Promise<CryptoKey> | null} */
    this.imported = null;
  }

  key() {
    return (this.imported ??= this.people.cipher(this.person));
  }

  /** @param {string} experiment @returns {Promise<Entry | null>} */
  read(experiment) {
    return this.people.use((db) => db.entry(this.person, experiment));
  }

  names() {
    return this.people.use((db) => db.names.all(this.person).map(({ experiment }) => experiment));
  }

  /** @template T @param {string} experiment @param {(entry: Entry) => [Entry, T]} change @returns {Promise<T>} */
  async change(experiment, change) {
    const { result, isPaid, isForgotten } = await this.people.use((db) =>
      db.transaction(() => {
        const before = db.entry(this.person, experiment);
        const [entry, result] = change(before ?? makeEntry());
        const { publication, known: knownServer, evidence, ...ownPart } = entry;
        db.write(NOBODY, experiment, { ...makeEntry(), publication, known: knownServer, evidence });
        db.write(this.person, experiment, { ...ownPart, publication: null, known: null, evidence: null });
        // What is paid must outlast a power cut, or a person would report again; a choice that is lost is made anew.
        const { payment = null, shown = null } = before ?? {};
        return { result, isPaid: entry.payment !== payment, isForgotten: shown !== null && entry.shown === null };
      }),
    );
    if (isPaid) flushPath(`${this.people.path}-wal`);
    // The log of writes has what was overwritten, too.
    if (isForgotten) await this.people.use((db) => db.database.exec("PRAGMA wal_checkpoint(TRUNCATE)"));
    return result;
  }
}

/** The statements of a database that is open. */
class Statements {
  /** @param {Database} database */
  constructor(database) {
    this.database = database;
    this.one = database.prepare("SELECT body FROM entries WHERE person = ? AND experiment = ?");
    this.names = database.prepare("SELECT experiment FROM entries WHERE person = ?");
    this.open = database.prepare("SELECT DISTINCT person FROM entries WHERE is_open");
    this.replace = database.prepare("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)");
    this.erase = database.prepare("DELETE FROM entries WHERE person = ? AND experiment = ?");
  }

  /** @param {Uint8Array} person @param {string} experiment @returns {string | null} */
  body(person, experiment) {
    return this.one.get(person, experiment)?.body ?? null;
  }

  /** @param {Uint8Array} person @param {string} experiment @returns {Entry | null} */
  entry(person, experiment) {
    const [ownPart, common] = [person, NOBODY].map((person) => parseEntry(this.body(person, experiment)));
    return ownPart || common ? { ...makeEntry(), ...ownPart, ...common } : null;
  }

  /** @param {Uint8Array} person @param {string} experiment @param {Entry} entry */
  write(person, experiment, entry) {
    const body = formatEntry(entry);
    if (body === (this.body(person, experiment) ?? "{}")) return;
    if (body === "{}") this.erase.run(person, experiment);
    else this.replace.run(person, experiment, body, entry.choice !== null || entry.waiting.length > 0 ? 1 : 0);
  }

  /** @template T @param {() => T} work @returns {T} */
  transaction(work) {
    this.database.exec("BEGIN IMMEDIATE");
    try {
      const result = work();
      this.database.exec("COMMIT");
      return result;
    } catch (error) {
      this.database.exec("ROLLBACK");
      throw error;
    }
  }
}

/** What an entry has, without what it has not. @param {Entry} entry */
const formatEntry = (entry) =>
  JSON.stringify(Object.fromEntries(Object.entries(entry).filter(([, value]) => value !== null && /** @type {any} */ (value).length !== 0)), (_, value) =>
    value instanceof Uint8Array ? { bytes: Buffer.from(value).toString("base64") } : value,
  );

/** @param {string | null} body @returns {Partial<Entry> | null} */
const parseEntry = (body) =>
  body && JSON.parse(body, (_, value) => (typeof value?.bytes === "string" ? new Uint8Array(Buffer.from(value.bytes, "base64")) : value));

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
    /** @type {Promise<Statements> | null} */
    this.opening = null;
  }

  /** The ledger of one person. @param {string} key what the application calls them @returns {Promise<Ledger>} */
  async of(key) {
    await this.use(() => null);
    return this.at(this.hash("person", key.normalize("NFC")).subarray(0, HASH_SIZE));
  }

  /** @param {Uint8Array} person */
  at(person) {
    return new Ledger(new PersonStore(this, person));
  }

  /** Ledgers of people whose choices or reports wait. @returns {Promise<Ledger[]>} */
  async waiting() {
    const rows = await this.use((db) => db.open.all());
    return rows.map(({ person }) => this.at(Buffer.from(person)));
  }

  /** @param {string} purpose @param {string} value @returns {Uint8Array} */
  hash(purpose, value) {
    const secret = /** @type {Uint8Array} */ (this.secret);
    return createHmac("sha256", secret).update(`privateer/${purpose}/1\0${value}`).digest();
  }

  /** What encrypts the choices of one person: none can be put in the place of another's. @param {Uint8Array} person @returns {Promise<CryptoKey>} */
  async cipher(person) {
    await this.use(() => null);
    return crypto.subtle.importKey("raw", new Uint8Array(this.hash("cipher", Buffer.from(person).toString("hex"))), "AES-GCM", false, ["encrypt", "decrypt"]);
  }

  /** Use the database, which is opened when it is first needed. @template T @param {(db: Statements) => T} work @returns {Promise<T>} */
  async use(work) {
    try {
      this.opening ??= this.open();
      return work(await this.opening);
    } catch (error) {
      this.opening = (await this.opening?.catch(() => null)) ? this.opening : null;
      if (error instanceof PrivateerError) throw error;
      const reason = /** @type {NodeJS.ErrnoException} */ (error).code ?? "it is damaged, or of another program";
      throw unwritable(`cannot use ${this.path} (${reason}): nothing was paid or sent`);
    }
  }

  /** @returns {Promise<Statements>} */
  async open() {
    closeSync(openSync(this.path, "a", 0o600));
    chmodSync(this.path, 0o600);
    const database = new (await loadDriver())(this.path);
    database.exec(SCHEMA);
    const db = new Statements(database);
    const mark = db.body(NOBODY, MARK);
    const file = `${this.path}.key`;
    if (mark && !this.secret && !existsSync(file)) throw unwritable(`${file} is missing, and without it nobody is known: put it back`);
    this.secret ??= loadOrCreateKey(this.path);
    const keyHash = this.hash("key", "").subarray(0, HASH_SIZE);
    db.transaction(() => db.body(NOBODY, MARK) ?? db.replace.run(NOBODY, MARK, Buffer.from(keyHash).toString("hex"), 0));
    const storedHash = Buffer.from(db.body(NOBODY, MARK) ?? "", "hex");
    if (storedHash.length !== keyHash.length || !timingSafeEqual(storedHash, keyHash)) throw unwritable(`${this.path} is of another key: give it, or put ${file} back`);
    flushPath(dirname(this.path)); // the log of writes is new, and stays while the database is open
    return db;
  }

  /** Close the database. */
  async close() {
    const db = await this.opening;
    this.opening = null;
    db?.database.close();
  }
}
