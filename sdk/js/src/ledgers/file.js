// @ts-check
/** A ledger in files, for Node. Several processes may share it. */

import { closeSync, fsyncSync, linkSync, openSync, readFileSync, readdirSync, unlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";

import { hex, unhex } from "../bytes.js";
import { PrivateerError, invalid, unwritable } from "../errors.js";
import { Ledger, makeEntry } from "./ledger.js";

const TRIES = 1000;
const RECENT = 64;
export const KEY_SIZE = 32;

/** @typedef {import("./ledger.js").Entry} Entry */
/** What a file has: entries by experiment, and the names of the last changes. @typedef {{entries: Record<string, Entry>, recent: string[]}} State */

/**
 * Entries in a file `NAME.7`, whose number grows with every change: the file of the largest number counts. A change is
 * written whole, on disk, before it gets the next number; who finds it taken begins anew with what was written there.
 */
class FileStore {
  /** @param {string} path @param {Uint8Array<ArrayBuffer> | null} secret what encrypts choices; null: what a file beside has */
  constructor(path, secret) {
    this.path = this.place = resolve(path);
    this.secret = secret;
  }

  /** @returns {Promise<CryptoKey>} */
  async key() {
    const secret = this.secret ?? this.attempt(() => loadOrCreateKey(this.path));
    return crypto.subtle.importKey("raw", secret, "AES-GCM", false, ["encrypt", "decrypt"]);
  }

  /** Numbers in use, the largest first. */
  numbers() {
    const [folder, name] = [dirname(this.path), basename(this.path)];
    const files = readdirSync(folder).flatMap((file) => {
      const number = file.startsWith(`${name}.`) ? file.slice(name.length + 1) : "";
      return /^[1-9][0-9]*$/.test(number) ? [Number(number)] : [];
    });
    return files.sort((file, other) => other - file);
  }

  /** @param {number} number */
  at(number) {
    return `${this.path}.${number}`;
  }

  /** The newest state, and its number. @returns {[State, number]} */
  newestFile() {
    for (let tries = 0; tries < TRIES; tries++) {
      const [number] = this.numbers();
      if (number === undefined) return [{ entries: Object.create(null), recent: [] }, 0];
      try {
        return [parseState(readFileSync(this.at(number), "utf8")), number];
      } catch (error) {
        // A newer one has taken its place.
        if (!hasCode(error, "ENOENT")) throw error;
      }
    }
    throw unwritable("the ledger changes all the time");
  }

  /** @param {string} experiment */
  async read(experiment) {
    return this.attempt(() => this.newestFile()[0].entries[experiment] ?? null);
  }

  async names() {
    return this.attempt(() => Object.keys(this.newestFile()[0].entries));
  }

  /** @template T @param {string} experiment @param {(entry: Entry) => [Entry, T]} change @returns {Promise<T>} */
  async change(experiment, change) {
    return this.attempt(() => {
      for (let tries = 0; tries < TRIES; tries++) {
        const [state, number] = this.newestFile();
        const [entry, answer] = change(state.entries[experiment] ?? makeEntry());
        const suffix = crypto.randomUUID();
        const recent = [suffix, ...state.recent].slice(0, RECENT);
        if (this.write({ entries: { ...state.entries, [experiment]: entry }, recent }, number, suffix)) return answer;
      }
      throw unwritable("the ledger changes all the time");
    });
  }

  /** Write a state as the successor of a number; false if another process was faster. @param {State} state @param {number} number @param {string} suffix */
  write(state, number, suffix) {
    const draft = `${this.path}.${suffix}.draft`;
    try {
      writeDurably(draft, JSON.stringify(state, (_, value) => (value instanceof Uint8Array ? { bytes: hex(value) } : value)));
      linkSync(draft, this.at(number + 1));
    } catch (error) {
      if (hasCode(error, "EEXIST")) return false;
      throw error;
    } finally {
      removeFile(draft);
    }
    flushPath(dirname(this.path));
    const numbers = this.numbers();
    if (numbers[0] !== number + 1) {
      // Either others have gone on from here; or this process had slept, and the number was free again.
      const stands = this.newestFile()[0].recent.includes(suffix);
      if (!stands) removeFile(this.at(number + 1));
      return stands;
    }
    numbers.slice(1).forEach((old) => removeFile(this.at(old)));
    return true;
  }

  /** @template T @param {() => T} use @returns {T} */
  attempt(use) {
    try {
      return use();
    } catch (error) {
      if (error instanceof PrivateerError) throw error;
      // The message of a parser quotes what it read.
      const reason = /** @type {NodeJS.ErrnoException} */ (error).code ?? "it is damaged, or of another program";
      throw unwritable(`cannot use ${this.path} (${reason}): nothing was paid or sent`);
    }
  }
}

/** The key in the file beside a ledger: on disk, whole, before anything is encrypted with it. @param {string} ledger
 * @returns {Uint8Array<ArrayBuffer>} */
export function loadOrCreateKey(ledger) {
  const path = `${ledger}.key`;
  try {
    const files = new Uint8Array(readFileSync(path));
    if (files.length !== KEY_SIZE) throw unwritable(`${path} is no key: put it back, or give one to the ledger`);
    return files;
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
  const draft = `${ledger}.${crypto.randomUUID()}.draft`;
  try {
    writeDurably(draft, crypto.getRandomValues(new Uint8Array(KEY_SIZE)));
    linkSync(draft, path);
    flushPath(dirname(path));
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error; // another process was faster
  } finally {
    removeFile(draft);
  }
  return loadOrCreateKey(ledger);
}

/** @param {unknown} error @param {string} code */
const hasCode = (error, code) => /** @type {NodeJS.ErrnoException} */ (error).code === code;

/** @param {string} path @param {string | Uint8Array} text */
function writeDurably(path, text) {
  const file = openSync(path, "wx", 0o600);
  try {
    writeFileSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** Have a file, or a folder's list of files, on disk. @param {string} path */
export function flushPath(path) {
  const file = openSync(path, "r");
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** @param {string} path */
function removeFile(path) {
  try {
    unlinkSync(path);
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
}

/** @param {string} text @returns {State} */
function parseState(text) {
  const { entries, recent } = JSON.parse(text, (_, value) => (typeof value?.bytes === "string" ? unhex(value.bytes) : value));
  return { entries: Object.assign(Object.create(null), entries), recent: [...recent] };
}

export class FileLedger extends Ledger {
  /**
   * @param {string} path beside which the files are; its folder must be there
   * @param {{key?: Uint8Array<ArrayBuffer>}} [options] key: 32 bytes that encrypt the choices that wait; by default those in a
   * file beside the ledger, made when it is first needed
   */
  constructor(path, { key } = {}) {
    if (key && key.length !== KEY_SIZE) throw invalid("must be 32 bytes: crypto.getRandomValues(new Uint8Array(32)), once", "key");
    super(new FileStore(path, key ?? null));
  }
}
