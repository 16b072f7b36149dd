/** A ledger in files, for Node. Several processes may share it. */
import { Ledger } from "./ledger.js";
export type Entry = import("./ledger.js").Entry;
export type State = {
    entries: Record<string, Entry>;
    recent: string[];
};
export declare class FileLedger extends Ledger {
    /**
     * @param {string} path beside which the files are; its folder must be there
     * @param {{key?: Uint8Array<ArrayBuffer>}} [options] key: 32 bytes that encrypt the choices that wait; by default those in a
     * file beside the ledger, made when it is first needed
     */
    constructor(path: string, { key }?: {
        key?: Uint8Array<ArrayBuffer>;
    });
}
