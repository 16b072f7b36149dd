/** The upload tokens in a device's ledger: drawn, then signed, then tied to one report, and gone with it. */
export type Kept = import("./token.js").PendingToken & {
    endpoint: string;
    token: Uint8Array<ArrayBuffer>;
    expires: number;
};
export type Sealed = import("../ledgers/ledger.js").Sealed;
export type Entry = import("../ledgers/ledger.js").Entry;
/** Tokens of the experiments in a ledger. Every change is one of the ledger's: at once and for good. */
export declare class Purse {
    ledger: import("../ledgers/ledger.js").Ledger;
    clock: {
        now: () => number;
        monotonic: () => number;
    };
    /** @param {import("../ledgers/ledger.js").Ledger} ledger @param {import("../platform.js").Clock} clock */
    constructor(ledger: import("../ledgers/ledger.js").Ledger, clock: import("../platform.js").Clock);
    /** @param {string} identity @param {(entry: Entry) => Entry} change */
    change(identity: string, change: (entry: Entry) => Entry): Promise<void>;
    /**
     * Keep tokens that are about to be asked for, no more than are missing: another page of this device may have drawn some
     * meanwhile. Return all that the issuer has not signed.
     * @param {string} identity @param {string} endpoint @param {import("./token.js").PendingToken[]} drawn
     * @param {number} expires @param {number} wanted @returns {Promise<Kept[]>}
     */
    begin(identity: string, endpoint: string, drawn: import("./token.js").PendingToken[], expires: number, wanted: number): Promise<Kept[]>;
    /** Tokens for an endpoint that the issuer has not signed. @param {string} identity @param {string} endpoint */
    pending(identity: string, endpoint: string): Promise<Kept[]>;
    /** Keep the signed token, and forget what could tie it to the request for it. @param {string} identity
     * @param {import("./token.js").PendingToken} pending @param {Uint8Array<ArrayBuffer>} token */
    finish(identity: string, { input }: import("./token.js").PendingToken, token: Uint8Array<ArrayBuffer>): Promise<void>;
    /** Forget a token that nobody will sign. @param {string} identity @param {import("./token.js").PendingToken} pending */
    drop(identity: string, { input }: import("./token.js").PendingToken): Promise<void>;
    /** Forget tokens left that are for another challenge, and those that have expired. @param {string} identity @param {string} endpoint @param {Uint8Array} digest */
    keepOnly(identity: string, endpoint: string, digest: Uint8Array): Promise<void>;
    /** Signed tokens that are left. @param {Entry} entry @param {string} endpoint */
    left(entry: Entry, endpoint: string): Kept[];
    /** How many signed tokens are left. @param {string} identity @param {string} endpoint */
    count(identity: string, endpoint: string): Promise<number>;
    /** How many reports wait without a token. @param {string} identity @param {string} endpoint */
    bare(identity: string, endpoint: string): Promise<number>;
    /**
     * The token that a waiting report comes with: the one of before, or one of those left; null: none is. Which one that is
     * tells nothing, since all are alike.
     * @param {string} identity @param {Sealed} report @returns {Promise<Uint8Array<ArrayBuffer> | null>}
     */
    tie(identity: string, report: Sealed): Promise<Uint8Array<ArrayBuffer> | null>;
    /** The token that a waiting report comes with; null: none. @param {string} identity @param {Sealed} report */
    tied(identity: string, report: Sealed): Promise<Uint8Array<ArrayBuffer> | null>;
    /** Those of the signed tokens left that have none of these marks. @param {string} identity @param {string} endpoint @param {Uint8Array[]} marks */
    strays(identity: string, endpoint: string, marks: Uint8Array[]): Promise<Kept[]>;
    /**
     * Forget the token of a report, unless it has another one by now, and tokens left that are no better.
     * @param {string} identity @param {Sealed} report @param {Uint8Array} token @param {Kept[]} strays
     */
    part(identity: string, report: Sealed, token: Uint8Array, strays: Kept[]): Promise<void>;
    /** Forget the token of a report, since no endpoint takes it any more. @param {string} identity @param {Sealed} report */
    untie(identity: string, report: Sealed): Promise<void>;
}
