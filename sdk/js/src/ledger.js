// @ts-check
/** What a device has paid for: one report to an experiment, whatever happens. Keep it where the device keeps its data. */

import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";

import { PrivateerError } from "./errors.js";

/** @typedef {{endpoint: string, body: string, answered: boolean}} Paid body in hexadecimal; empty once answered */

/** A ledger in memory, for tests: what it forgets could be reported twice. */
export class MemoryLedger {
  constructor() {
    /** @type {Record<string, Paid>} */
    this.paid = {};
    /** @type {Record<string, import("./log.js").Known>} */
    this.servers = {};
  }

  /** What is known of a server. @param {string} server */
  known(server) {
    return Object.hasOwn(this.servers, server) ? this.servers[server] : null;
  }

  /** Keep what is known of a server. @param {string} server @param {import("./log.js").Known} known */
  know(server, known) {
    this.servers[server] = known;
    this.save();
  }

  /** @param {string} experiment identity: server and name */
  has(experiment) {
    return Object.hasOwn(this.paid, experiment);
  }

  /** Pay, and keep the bytes that are paid for. @param {string} experiment @param {string} endpoint @param {Uint8Array<ArrayBuffer>} body */
  pay(experiment, endpoint, body) {
    if (this.has(experiment)) throw new PrivateerError("already-reported", "this device has reported to the experiment");
    this.paid[experiment] = { endpoint, body: Buffer.from(body).toString("hex"), answered: false };
    this.save();
  }

  /** Forget the bytes, not the payment. @param {string} experiment */
  answered(experiment) {
    this.paid[experiment] = { ...this.paid[experiment], body: "", answered: true };
    this.save();
  }

  /** Reports that nobody has answered for good. */
  waiting() {
    return Object.entries(this.paid).filter(([, one]) => !one.answered);
  }

  save() {}
}

/** A ledger in a file. One process may use it at a time. */
export class FileLedger extends MemoryLedger {
  /** @param {string} path */
  constructor(path) {
    super();
    this.path = path;
    if (!existsSync(path)) return;
    const told = JSON.parse(readFileSync(path, "utf8"));
    // Earlier versions wrote the payments alone.
    const isEarlier = !Object.hasOwn(told, "servers");
    this.paid = isEarlier ? told : told.paid;
    this.servers = isEarlier ? {} : told.servers;
  }

  /** Write it whole, on disk, before anything is sent. */
  save() {
    const draft = `${this.path}.new`;
    const file = openSync(draft, "w", 0o600);
    try {
      writeSync(file, JSON.stringify({ paid: this.paid, servers: this.servers }));
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(draft, this.path);
  }
}
