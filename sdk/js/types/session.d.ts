/** One person's part in one experiment: choose, then report. */
export type Choice = import("./participation.js").Choice;
export type Outcome = import("./delivery.js").Outcome;
/** @typedef {import("./participation.js").Choice} Choice */
/** @typedef {import("./delivery.js").Outcome} Outcome */
/** `Client.join` makes it. */
export declare class Session {
    publications: import("./publications.js").Publications;
    client: import("./client.js").Client;
    published: import("./publications.js").Published;
    entry: import("./ledgers/ledger.js").Entry;
    isTime: boolean;
    /** The choice that the ledger has, or is about to. @type {Choice | null} */
    kept: Choice | null;
    /** What a report is about. @type {Choice | null} */
    choice: Choice | null;
    /** Whether this person is asked for a report: the round asks them, or the device keeps their choice. */
    asked: boolean;
    /** The reason of a refused report, or why one still waits. @type {string | null} */
    refusal: string | null;
    /** @type {Promise<unknown>} */
    keeping: Promise<unknown>;
    /**
     * @param {import("./publications.js").Publications} publications @param {import("./publications.js").Published} published
     * @param {import("./ledgers/ledger.js").Entry} entry what the ledger has @param {Choice | null} kept the choice in it
     * @param {boolean} isTime whether the device reports this time: where it reports one time of several, it has drawn which
     */
    constructor(publications: import("./publications.js").Publications, published: import("./publications.js").Published, entry: import("./ledgers/ledger.js").Entry, kept: Choice | null, isTime: boolean);
    /** Whether the policy is one that the device had kept, since the server did not answer. */
    get offline(): boolean;
    get participation(): import("./participation.js").Participation;
    /** Names of the features, in order. */
    get features(): string[];
    /** Names of the arms. */
    get arms(): string[];
    get isOpen(): boolean;
    get isAsked(): boolean;
    /**
     * Choose for this person; nothing is sent. The report is about the last choice before it. The choice is kept, encrypted, if
     * the person is asked for a report, and stands, also in later sessions: until its report is made or due, its period is
     * over, or no report on it would count any more.
     * @param {Record<string, any>} [context] a value for each feature
     * @param {{fresh?: boolean}} [how] fresh: decide anew, in the place of the choice that is kept. Whoever sees the arms then
     * sees one more
     * @returns {string} the name of an arm
     */
    choose(context?: Record<string, any>, { fresh }?: {
        fresh?: boolean;
    }): string;
    /** Keep a choice, or none, unless another one stands. @param {Choice | null} choice @param {boolean} fresh */
    keep(choice: Choice | null, fresh: boolean): void;
    /** Make sure that the choice is kept, on disk: `Client.resume` finds it after a restart. */
    save(): Promise<void>;
    /** Erase the choice, here and in the ledger: no report is made of it, and the next call of `choose` is free. */
    forget(): Promise<void>;
    /**
     * Tell what came of the choice: pay, randomize, seal and send, once. Where the experiment waits for outcomes the device
     * keeps this one, in the place of the one before: the first `join` or `resend` after the window makes the report.
     * @param {number | boolean | null | Record<string, number | boolean | null>} reward null where nothing is known; with
     * guardrails `{reward, ...}` by their names
     * @returns {Promise<Outcome>}
     */
    report(reward: number | boolean | null | Record<string, number | boolean | null>): Promise<Outcome>;
    /**
     * Keep an outcome with the choice that is kept, or is to be, and return that; null where there is none, or that of another
     * page, of which this outcome says nothing.
     * @param {Choice} choice @param {number[]} values
     */
    told(choice: Choice, values: number[]): Promise<import("./participation.js").Choice | null>;
    /** Report to the open round, or keep the outcome if nobody says which one that is. @param {Choice} choice @returns {Promise<Outcome>} */
    sent(choice: Choice): Promise<Outcome>;
    /** @param {import("./ledgers/ledger.js").Sealed} sealed */
    delivered(sealed: import("./ledgers/ledger.js").Sealed): Promise<import("./delivery.js").Outcome>;
}
