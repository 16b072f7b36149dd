// @ts-check
/** The entries of many people in one SQLite file, for the thread that has it open. Several processes on one machine may share it. */

import { createHmac, timingSafeEqual } from "node:crypto";
import { chmodSync, closeSync, existsSync, openSync } from "node:fs";
import { dirname } from "node:path";

import { unsupported, unwritable } from "../errors.js";
import { flushPath, loadOrCreateKey } from "./file.js";

/** Whose entries are everybody's: publications, what is known of servers, and the mark of the key. */
const NOBODY = "";
const MARK = "#key";
export const HASH_SIZE = 16;
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

/** The texts of a person's entry and of everybody's; null where there is none. @typedef {{person: string | null, common: string | null}} Bodies */

/**
 * What takes the place of the texts of before, if they are still there.
 * @typedef {object} Swap
 * @property {string} person
 * @property {string} experiment
 * @property {Bodies} before
 * @property {Bodies} after
 * @property {boolean} isOpen whether a choice or a report waits
 * @property {boolean} isPaid whether it has to outlast a power cut
 * @property {boolean} isForgotten whether the log of writes must not have what was before
 */

/** @typedef {{get(...values: unknown[]): any, all(...values: unknown[]): any[], run(...values: unknown[]): unknown}} Statement */
/** @typedef {{exec(sql: string): unknown, prepare(sql: string): Statement, close(): void}} Database */

/** A keyed hash. @param {Uint8Array} secret @param {string} purpose @param {string} value @returns {Uint8Array} */
export const hashKeyed = (secret, purpose, value) => createHmac("sha256", secret).update(`privateer/${purpose}/1\0${value}`).digest();

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

/** A database that is open. People are named by hexadecimal digits. */
export class PeopleDatabase {
  /** @param {string} path @param {Database} database @param {Uint8Array | null} secret */
  constructor(path, database, secret) {
    this.path = path;
    this.database = database;
    this.secret = secret;
    this.body = database.prepare("SELECT body FROM entries WHERE person = ? AND experiment = ?");
    this.experiments = database.prepare("SELECT experiment FROM entries WHERE person = ?");
    this.open = database.prepare("SELECT DISTINCT person FROM entries WHERE is_open");
    this.replace = database.prepare("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)");
    this.erase = database.prepare("DELETE FROM entries WHERE person = ? AND experiment = ?");
  }

  /** Open the file, and check that people are known by the same key as before. @param {string} path @param {Uint8Array | null} secret */
  static async open(path, secret) {
    closeSync(openSync(path, "a", 0o600));
    chmodSync(path, 0o600);
    const database = new (await loadDriver())(path);
    try {
      database.exec(SCHEMA);
      const people = new PeopleDatabase(path, database, secret);
      people.checkKey();
      flushPath(dirname(path)); // the log of writes is new, and stays while the database is open
      return people;
    } catch (error) {
      database.close();
      throw error;
    }
  }

  checkKey() {
    const file = `${this.path}.key`;
    if (this.text(NOBODY, MARK) && !this.secret && !existsSync(file)) throw unwritable(`${file} is missing, and without it nobody is known: put it back`);
    this.secret ??= loadOrCreateKey(this.path);
    const keyHash = Buffer.from(hashKeyed(this.secret, "key", "").subarray(0, HASH_SIZE));
    this.transaction(() => this.text(NOBODY, MARK) ?? this.write(NOBODY, MARK, keyHash.toString("hex"), false));
    const storedHash = Buffer.from(this.text(NOBODY, MARK) ?? "", "hex");
    if (storedHash.length !== keyHash.length || !timingSafeEqual(storedHash, keyHash)) throw unwritable(`${this.path} is of another key: give it, or put ${file} back`);
  }

  /** @param {string} person @param {string} experiment @returns {string | null} */
  text(person, experiment) {
    return this.body.get(Buffer.from(person, "hex"), experiment)?.body ?? null;
  }

  /** @param {string} person @param {string} experiment @returns {Bodies} */
  read(person, experiment) {
    return { person: this.text(person, experiment), common: this.text(NOBODY, experiment) };
  }

  /** Experiments that a person's entries are about. @param {string} person @returns {string[]} */
  names(person) {
    return this.experiments.all(Buffer.from(person, "hex")).map(({ experiment }) => experiment);
  }

  /** People whose choices or reports wait. @returns {string[]} */
  waiting() {
    return this.open.all().map(({ person }) => Buffer.from(person).toString("hex"));
  }

  /** Compare and set, in one transaction. @param {Swap} swap @returns {Bodies | null} null if it is done; else what is there by now */
  swap({ person, experiment, before, after, isOpen, isPaid, isForgotten }) {
    const current = this.transaction(() => {
      const stored = this.read(person, experiment);
      if (stored.person !== before.person || stored.common !== before.common) return stored;
      if (after.common !== before.common) this.write(NOBODY, experiment, after.common, false);
      if (after.person !== before.person) this.write(person, experiment, after.person, isOpen);
      return null;
    });
    if (current) return current;
    // What is paid must outlast a power cut, or a person would report again; a choice that is lost is made anew.
    if (isPaid) flushPath(`${this.path}-wal`);
    // The log of writes has what was overwritten, too.
    if (isForgotten) this.database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    return null;
  }

  /** @param {string} person @param {string} experiment @param {string | null} body @param {boolean} isOpen */
  write(person, experiment, body, isOpen) {
    if (body === null) this.erase.run(Buffer.from(person, "hex"), experiment);
    else this.replace.run(Buffer.from(person, "hex"), experiment, body, isOpen ? 1 : 0);
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

  close() {
    this.database.close();
  }
}
