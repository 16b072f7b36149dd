/** Privateer on a device, in browsers and wherever the web's own interfaces are. */
export type Answer = import("./answer.js").Answer;
export type ExportDocument = import("./answer.js").ExportDocument;
export type PolicyView = import("./answer.js").PolicyView;
export type PublishedPolicy = import("./answer.js").PublishedPolicy;
export type PublishedResult = import("./answer.js").PublishedResult;
export type PublishedState = import("./answer.js").PublishedState;
/** @typedef {import("./answer.js").Answer} Answer */
/** @typedef {import("./answer.js").ExportDocument} ExportDocument */
/** @typedef {import("./answer.js").PolicyView} PolicyView */
/** @typedef {import("./answer.js").PublishedPolicy} PublishedPolicy */
/** @typedef {import("./answer.js").PublishedResult} PublishedResult */
/** @typedef {import("./answer.js").PublishedState} PublishedState */
export { Client } from "./client.js";
export { PrivateerError } from "./errors.js";
export { IndexedDbLedger } from "./ledgers/indexeddb.js";
export { Ledger } from "./ledgers/ledger.js";
export { MemoryLedger } from "./ledgers/memory.js";
export { OfflinePolicy } from "./offline/policy.js";
export { missing } from "./platform.js";
export { Session } from "./session.js";
export { LIMITS } from "./verification.js";
