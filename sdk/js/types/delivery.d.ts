/** How sealed reports reach their endpoints: the same bytes until an answer decides. */
/** What they say of tokens that they do not know. The keys that they show tell whether they ever will. */
export declare const DOUBTED: Set<string>;
export type Outcome = "accepted" | "late" | "not-asked" | "refused" | "pending";
export type Verdict = {
    outcome: Outcome;
    reason: string | null;
};
/**
 * `accepted`: it is durable. `late`: the round closed before the report came. `not-asked`: nothing was paid or sent.
 * `refused`: the endpoint did not take it. `pending`: nobody has decided yet, and the ledger keeps it.
 * @typedef {"accepted" | "late" | "not-asked" | "refused" | "pending"} Outcome
 */
/** @typedef {{outcome: Outcome, reason: string | null}} Verdict */
/** What an answer decides about a report. @param {import("./exchange.js").Answer} answer @returns {Outcome} */
export declare function judged(answer: import("./exchange.js").Answer): Outcome;
/** Sends what a ledger keeps. */
export declare class Delivery {
    ledger: import("./ledgers/ledger.js").Ledger;
    purse: import("./tokens/purse.js").Purse;
    timeout: number;
    clock: {
        now: () => number;
        monotonic: () => number;
    };
    /** @param {import("./ledgers/ledger.js").Ledger} ledger @param {import("./tokens/purse.js").Purse} purse
     * @param {number} timeout @param {import("./platform.js").Clock} clock */
    constructor(ledger: import("./ledgers/ledger.js").Ledger, purse: import("./tokens/purse.js").Purse, timeout: number, clock: import("./platform.js").Clock);
    /** Send once. @param {string} identity @param {import("./ledgers/ledger.js").Sealed} sealed @returns {Promise<Verdict & {quiet: number}>} */
    once(identity: string, sealed: import("./ledgers/ledger.js").Sealed): Promise<Verdict & {
        quiet: number;
    }>;
    /** Send until an answer decides, or patience ends. @param {string} identity @param {import("./ledgers/ledger.js").Sealed} sealed
     * @param {number} patience seconds @returns {Promise<Verdict>} */
    until(identity: string, sealed: import("./ledgers/ledger.js").Sealed, patience: number): Promise<Verdict>;
}
