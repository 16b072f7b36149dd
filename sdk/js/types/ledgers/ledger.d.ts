/** What a device has paid for, keeps and still has to send. A store makes it last; what it says is the same everywhere. */
export type Payment = {
    version: number;
    model: string;
    epsilon: number | null;
    delta: number;
    localEpsilon: number | null;
    day: number;
    reports: number;
    made: number;
    period: number;
    pinned: string;
};
export type Sealed = {
    endpoint: string;
    body: Uint8Array<ArrayBuffer>;
    token?: Uint8Array<ArrayBuffer> | null;
};
export type Turn = {
    times: number;
    seconds: number;
    drawn: number;
    come: number;
    period: number;
};
export type Entry = {
    payment: Payment | null;
    /**
     * reports that nobody has answered for good
     */
    waiting: Sealed[];
    /**
     * encrypted (`vault.js`); one of an
     * earlier version is not, until it is read
     */
    choice: Uint8Array<ArrayBuffer> | import("../participation.js").Choice | null;
    turn: Turn | null;
    /**
     * the last one that was checked; it is public
     */
    publication: Uint8Array<ArrayBuffer> | null;
    /**
     * upload tokens that no report comes with yet
     */
    tokens?: import("../tokens/purse.js").Kept[];
    /**
     * of a server: its key, and the last head of its log
     */
    known?: import("../log.js").Known | null;
    /**
     * against a server, as JSON
     */
    evidence?: string | null;
};
export type Store = {
    read: (experiment: string) => Promise<Entry | null>;
    change: <T>(experiment: string, change: (entry: Entry) => [Entry, T]) => Promise<T>;
    names: () => Promise<string[]>;
    /**
     * what encrypts choices: the same each time, made when it is first needed
     */
    key: () => Promise<CryptoKey>;
};
export type Choice = import("../participation.js").Choice;
/**
 * What the reports to an experiment have cost: the first one pays for all that share the promise.
 * @typedef {{version: number, model: string, epsilon: number | null, delta: number, localEpsilon: number | null, day: number,
 *   reports: number, made: number, period: number, pinned: string}} Payment epsilons are null where there is no bound
 */
/** A report that was made for an endpoint, and the upload token that it comes with, if it has one.
 * @typedef {{endpoint: string, body: Uint8Array<ArrayBuffer>, token?: Uint8Array<ArrayBuffer> | null}} Sealed */
/** Which time of several was drawn for the report, and which it is now. @typedef {{times: number, seconds: number, drawn: number,
 *   come: number, period: number}} Turn */
/**
 * All that a ledger has of an experiment.
 * @typedef {object} Entry
 * @property {Payment | null} payment
 * @property {Sealed[]} waiting reports that nobody has answered for good
 * @property {Uint8Array<ArrayBuffer> | import("../participation.js").Choice | null} choice encrypted (`vault.js`); one of an
 * earlier version is not, until it is read
 * @property {Turn | null} turn
 * @property {Uint8Array<ArrayBuffer> | null} publication the last one that was checked; it is public
 * @property {import("../tokens/purse.js").Kept[]} [tokens] upload tokens that no report comes with yet
 * @property {import("../log.js").Known | null} [known] of a server: its key, and the last head of its log
 * @property {string | null} [evidence] against a server, as JSON
 */
/**
 * Where entries are kept. `change` replaces one by what a function makes of it, at once and for good: no two of them, of
 * this page, another tab or another process, see the same entry before. It rejects, and changes nothing, if it cannot.
 * @typedef {object} Store
 * @property {(experiment: string) => Promise<Entry | null>} read
 * @property {<T>(experiment: string, change: (entry: Entry) => [Entry, T]) => Promise<T>} change
 * @property {() => Promise<string[]>} names
 * @property {() => Promise<CryptoKey>} key what encrypts choices: the same each time, made when it is first needed
 */
/** @typedef {import("../participation.js").Choice} Choice */
/** @returns {Entry} */
export declare const blank: () => Entry;
/** @param {Payment} paid @param {number} period */
export declare const allows: (paid: Payment, period: number) => boolean;
/** A device's own account of its reports: paid before they are sent, no oftener than was promised. */
export declare class Ledger {
    store: Store;
    /** @param {Store} store */
    constructor(store: Store);
    /** @param {string} experiment identity: server and name @returns {Promise<Entry>} */
    entry(experiment: string): Promise<Entry>;
    /** Experiments that the ledger has anything of. @returns {Promise<string[]>} */
    names(): Promise<string[]>;
    /**
     * Pay, keep the bytes that are paid for, and erase the choice behind them. Only then may they be sent.
     * @param {string} experiment @param {Omit<Payment, "made">} asked @param {Sealed} sealed
     */
    pay(experiment: string, asked: Omit<Payment, "made">, sealed: Sealed): Promise<void>;
    /** Forget a report that was answered for good, but not its payment. @param {string} experiment @param {Sealed} sealed */
    answered(experiment: string, sealed: Sealed): Promise<void>;
    /** The choice that is kept. @param {string} experiment @returns {Promise<Choice | null>} */
    choice(experiment: string): Promise<Choice | null>;
    /** @param {Entry["choice"]} kept @param {string} experiment */
    opened(kept: Entry["choice"], experiment: string): Promise<import("../participation.js").Choice | null>;
    /**
     * Replace the choice that is kept by what a function makes of it, and return that. None is kept once no report can be made of it.
     * The function may be called again, where another page has kept something meanwhile.
     * @param {string} experiment @param {(kept: Choice | null) => Choice | null} change
     */
    keep(experiment: string, change: (kept: Choice | null) => Choice | null): Promise<import("../participation.js").Choice | null>;
    /** Erase the choice, whether it can be read or not: no report will be made of it. @param {string} experiment */
    forget(experiment: string): Promise<void>;
    /** Keep a publication in the place of the one before. @param {string} experiment @param {Uint8Array<ArrayBuffer>} publication */
    remember(experiment: string, publication: Uint8Array<ArrayBuffer>): Promise<void>;
    /** What is known of a server. @param {string} server @returns {Promise<import("../log.js").Known | null>} */
    known(server: string): Promise<import("../log.js").Known | null>;
    /**
     * Keep what is known of a server, unless something else than before has come to be known meanwhile.
     * @param {string} server @param {import("../log.js").Known} known @param {import("../log.js").Known | null} before
     * @returns {Promise<boolean>} whether it is kept
     */
    know(server: string, known: import("../log.js").Known, before: import("../log.js").Known | null): Promise<boolean>;
    /** Evidence against a server. @param {string} server @returns {Promise<string | null>} */
    evidence(server: string): Promise<string | null>;
    /** Keep evidence against a server, unless there is a contradiction already. @param {string} server @param {string} evidence */
    accuse(server: string, evidence: string): Promise<void>;
    /**
     * Trust whatever key and log a server has the next time, as at the first time.
     * @param {string} server @returns {Promise<string | null>} the evidence against it, which the ledger then has no more
     */
    forgetServer(server: string): Promise<string | null>;
    /**
     * Whether this time, of so many that the person comes, is the one that was drawn for the report. It is drawn when they
     * first come, and sent to nobody.
     * @param {string} experiment @param {number} times @param {number} seconds @param {number} period
     */
    draw(experiment: string, times: number, seconds: number, period: number): Promise<boolean>;
}
