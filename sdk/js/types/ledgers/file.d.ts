/** A ledger in files, for Node. Several processes may share it. */
import { Ledger } from "./ledger.js";
export type Entry = import("./ledger.js").Entry;
export type State = {
    entries: Record<string, Entry>;
    recent: string[];
};
export declare class FileLedger extends Ledger {
    /** @param {string} path beside which the files are; its folder must be there */
    constructor(path: string);
}
