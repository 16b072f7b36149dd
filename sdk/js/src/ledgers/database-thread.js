// @ts-check
/** A database in a thread of its own, so that no disk and no lock holds the event loop. */

import { Worker } from "node:worker_threads";

import { PrivateerError } from "../errors.js";

/** @typedef {import("./database-worker.js").Action} Action */
/** @typedef {{resolve: (result: any) => void, reject: (error: unknown) => void}} Request */

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
    this.worker.unref(); // a process with nothing else to do ends
    this.worker.on("message", (/** @type {any} */ answer) => this.settle(answer));
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

  /** @param {{number: number, result: any, failure?: {code?: string, problem: {type: string, field: string, message: string} | null}}} answer */
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
