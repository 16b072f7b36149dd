/** A ledger in memory, for tests: what it forgets could be reported twice. */
import { Ledger } from "./ledger.js";
export type Store = import("./ledger.js").Store;
export declare class MemoryLedger extends Ledger {
    constructor();
}
