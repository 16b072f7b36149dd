// @ts-check
/** A database in a thread of its own, so that no disk and no lock holds the event loop. */

import { Worker } from "node:worker_threads";

import { PrivateerError } from "../errors.js";

/** @typedef {import("./database-worker.js").Action} Action */
/** @typedef {{resolve: (result: any) => void, reject: (error: unknown) => void}} Request */
/** @typedef {{number: number, result: any, failure?: {code?: string, problem: {type: string, field: string, message: string} | null}}} Answer */

/** Milliseconds of a turn of the event loop in which answers are passed on; the others wait for turns of their own. */
const TURN_MS = 1;

export class DatabaseThread {
  /** @param {string} path @param {Uint8Array | null} secret */
  constructor(path, secret) {
    /** Node's own type is not everybody's. @type {any} */
    this.worker = new Worker(new URL("./database-worker.js", import.meta.url), {
      workerData: { path, secret },
      execArgv: [], // not all arguments of a process are those of a thread
    });
    this.isOver = false;
    this.count = 0;
    /** @type {Map<number, Request>} */
    this.requests = new Map();
    /** Answers that wait for a later turn. @type {Answer[]} */
    this.delayed = [];
    /** When this turn passed its first answer on; null: it has passed none on. @type {number | null} */
    this.turnStart = null;
    this.worker.unref(); // a process with nothing else to do ends
    this.worker.on("message", (/** @type {Answer} */ answer) => this.receive(answer));
    this.worker.on("error", (/** @type {unknown} */ error) => this.end(error));
    /** @type {Promise<void>} */
    this.ended = new Promise((resolve) => this.worker.on("exit", () => resolve(this.end(null))));
  }

  /** Ask for one thing. @param {Action} action @param {unknown[]} values @returns {Promise<any>} */
  ask(action, ...values) {
    return new Promise((resolve, reject) => {
      if (this.isOver) throw threadError(null);
      this.requests.set(++this.count, { resolve, reject });
      this.worker.ref();
      this.worker.postMessage({ number: this.count, action, values });
    });
  }

  /** Pass an answer on, or leave it for a later turn: a port gives all that it has at once. @param {Answer} answer */
  receive(answer) {
    const isLate = this.delayed.length > 0 || (this.turnStart !== null && performance.now() - this.turnStart > TURN_MS);
    if (this.turnStart === null) this.beginTurn();
    if (isLate) this.delayed.push(answer);
    else this.settle(answer);
  }

  beginTurn() {
    this.turnStart = performance.now();
    setImmediate(() => {
      this.turnStart = null;
      const answer = this.delayed.shift();
      if (!answer) return;
      this.beginTurn();
      this.settle(answer);
    });
  }

  /** @param {Answer} answer */
  settle({ number, result, failure }) {
    const request = this.requests.get(number);
    this.requests.delete(number);
    if (!this.requests.size) this.worker.unref();
    if (!failure) return request?.resolve(result);
    const { code, problem } = failure;
    request?.reject(problem ? Object.assign(new PrivateerError(problem.type, problem.message), { field: problem.field }) : Object.assign(new Error(), { code }));
  }

  /** @param {unknown} error */
  end(error) {
    this.isOver = true;
    for (const answer of this.delayed.splice(0)) this.settle(answer);
    for (const { reject } of this.requests.values()) reject(threadError(error));
    this.requests.clear();
  }

  /** Close the database, after what was asked before, and wait until the thread has ended. */
  async close() {
    await this.ask("close").catch(() => this.worker.terminate());
    this.worker.ref();
    await this.ended;
  }
}

/** An error that leaves open whether what was asked was done. @param {any} error */
const threadError = (error) => Object.assign(new Error(), { code: ["its thread has ended", error?.code].filter(Boolean).join(": "), isUnknown: true });
