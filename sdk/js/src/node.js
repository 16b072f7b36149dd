// @ts-check
/** Privateer on a device, in Node: the same, and a ledger in files. */

export * from "./index.js";
export { FileLedger } from "./ledgers/file.js";
