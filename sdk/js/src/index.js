// @ts-check
/** Privateer on a device, in browsers and wherever the web's own interfaces are. */

/** @typedef {import("./answer.js").Answer} Answer */
/** @typedef {import("./answer.js").ExportDocument} ExportDocument */
/** @typedef {import("./answer.js").PolicyView} PolicyView */
/** @typedef {import("./answer.js").PublishedPolicy} PublishedPolicy */
/** @typedef {import("./answer.js").Conclusion} Conclusion */
/** @typedef {import("./answer.js").PublishedAnswer} PublishedAnswer */
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
