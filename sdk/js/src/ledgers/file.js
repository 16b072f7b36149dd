// @ts-check
/** A ledger in files, for Node. Several processes may share it. */

import { closeSync, fsyncSync, linkSync, openSync, readFileSync, readdirSync, unlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";

import { hex, unhex } from "../bytes.js";
import { PrivateerError, invalid, unwritable } from "../errors.js";
import { Ledger, blank } from "./ledger.js";

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
    const secret = this.secret ?? this.tried(() => keptKey(this.path));
    return crypto.subtle.importKey("raw", secret, "AES-GCM", false, ["encrypt", "decrypt"]);
  }

  /** Numbers in use, the largest first. */
  numbers() {
    const [folder, name] = [dirname(this.path), basename(this.path)];
    const found = readdirSync(folder).flatMap((one) => {
      const number = one.startsWith(`${name}.`) ? one.slice(name.length + 1) : "";
      return /^[1-9][0-9]*$/.test(number) ? [Number(number)] : [];
    });
    return found.sort((one, other) => other - one);
  }

  /** @param {number} number */
  at(number) {
    return `${this.path}.${number}`;
  }

  /** The newest state, and its number. @returns {[State, number]} */
  newest() {
    for (let tries = 0; tries < TRIES; tries++) {
      const [number] = this.numbers();
      if (number === undefined) return [{ entries: Object.create(null), recent: [] }, 0];
      try {
        return [parsed(readFileSync(this.at(number), "utf8")), number];
      } catch (error) {
        // A newer one has taken its place.
        if (!is(error, "ENOENT")) throw error;
      }
    }
    throw unwritable("the ledger changes all the time");
  }

  /** @param {string} experiment */
  async read(experiment) {
    return this.tried(() => this.newest()[0].entries[experiment] ?? null);
  }

  async names() {
    return this.tried(() => Object.keys(this.newest()[0].entries));
  }

  /** @template T @param {string} experiment @param {(entry: Entry) => [Entry, T]} change @returns {Promise<T>} */
  async change(experiment, change) {
    return this.tried(() => {
      for (let tries = 0; tries < TRIES; tries++) {
        const [state, number] = this.newest();
        const [entry, told] = change(state.entries[experiment] ?? blank());
        const own = crypto.randomUUID();
        const recent = [own, ...state.recent].slice(0, RECENT);
        if (this.written({ entries: { ...state.entries, [experiment]: entry }, recent }, number, own)) return told;
      }
      throw unwritable("the ledger changes all the time");
    });
  }

  /** Write a state as the successor of a number; false if another process was faster. @param {State} state @param {number} number @param {string} own */
  written(state, number, own) {
    const draft = `${this.path}.${own}.draft`;
    try {
      onDisk(draft, JSON.stringify(state, (_, value) => (value instanceof Uint8Array ? { bytes: hex(value) } : value)));
      linkSync(draft, this.at(number + 1));
    } catch (error) {
      if (is(error, "EEXIST")) return false;
      throw error;
    } finally {
      removed(draft);
    }
    flushed(dirname(this.path));
    const numbers = this.numbers();
    if (numbers[0] !== number + 1) {
      // Either others have gone on from here; or this process had slept, and the number was free again.
      const stands = this.newest()[0].recent.includes(own);
      if (!stands) removed(this.at(number + 1));
      return stands;
    }
    numbers.slice(1).forEach((old) => removed(this.at(old)));
    return true;
  }

  /** @template T @param {() => T} use @returns {T} */
  tried(use) {
    try {
      return use();
    } catch (error) {
      if (error instanceof PrivateerError) throw error;
      // The message of a parser quotes what it read.
      const why = /** @type {NodeJS.ErrnoException} */ (error).code ?? "it is damaged, or of another program";
      throw unwritable(`cannot use ${this.path} (${why}): nothing was paid or sent`);
    }
  }
}

/** The key in the file beside a ledger: on disk, whole, before anything is encrypted with it. @param {string} ledger
 * @returns {Uint8Array<ArrayBuffer>} */
export function keptKey(ledger) {
  const path = `${ledger}.key`;
  try {
    const found = new Uint8Array(readFileSync(path));
    if (found.length !== KEY_SIZE) throw unwritable(`${path} is no key: put it back, or give one to the ledger`);
    return found;
  } catch (error) {
    if (!is(error, "ENOENT")) throw error;
  }
  const draft = `${ledger}.${crypto.randomUUID()}.draft`;
  try {
    onDisk(draft, crypto.getRandomValues(new Uint8Array(KEY_SIZE)));
    linkSync(draft, path);
    flushed(dirname(path));
  } catch (error) {
    if (!is(error, "EEXIST")) throw error; // another process was faster
  } finally {
    removed(draft);
  }
  return keptKey(ledger);
}

/** @param {unknown} error @param {string} code */
const is = (error, code) => /** @type {NodeJS.ErrnoException} */ (error).code === code;

/** @param {string} path @param {string | Uint8Array} text */
function onDisk(path, text) {
  const file = openSync(path, "wx", 0o600);
  try {
    writeFileSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** @param {string} folder */
function flushed(folder) {
  const file = openSync(folder, "r");
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** @param {string} path */
function removed(path) {
  try {
    unlinkSync(path);
  } catch (error) {
    if (!is(error, "ENOENT")) throw error;
  }
}

/** @param {string} text @returns {State} */
function parsed(text) {
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
