// @ts-check
/** The thread of a database: it does what it is asked, one thing after another. */

import { parentPort, workerData } from "node:worker_threads";

import { PrivateerError } from "../errors.js";
import { PeopleDatabase } from "./database.js";

/** @typedef {"open" | "read" | "swap" | "names" | "waiting" | "close"} Action */

const port = /** @type {import("node:worker_threads").MessagePort} */ (parentPort);
/** @type {any} */
let database = null;

/** @param {Action} action @param {unknown[]} values */
async function act(action, values) {
  if (action !== "open") return database[action](...values);
  database = await PeopleDatabase.open(workerData.path, workerData.secret);
  return database.secret;
}

port.on("message", async ({ number, action, values }) => {
  try {
    port.postMessage({ number, result: await act(action, values) });
  } catch (error) {
    const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
    const problem = error instanceof PrivateerError ? { type: error.type, field: error.field, message } : null;
    port.postMessage({ number, failure: { code, problem } });
  }
  if (action === "close") port.close();
});
