/** A ledger in the browser's database, which all tabs of an origin share: its transactions come one after another. */
import { Ledger } from "./ledger.js";
export type Entry = import("./ledger.js").Entry;
/** A ledger of this origin: all its pages and tabs share it. */
export declare class IndexedDbLedger extends Ledger {
    /** @param {string} [name] of the database */
    constructor(name?: string);
    /**
     * Ask the browser to keep the ledger when disks fill up; it may ask the person. Without it a browser that is short of
     * space may forget what was reported, and report again.
     * @returns {Promise<boolean>} whether it will
     */
    persist(): Promise<boolean>;
}
