// @ts-check
/** Privateer on a device. */

export { Client, Session } from "./client.js";
export { PrivateerError } from "./errors.js";
export { FileLedger, MemoryLedger } from "./ledger.js";
export { LIMITS } from "./verification.js";
