/** The SDK's entry: a client of one server, and of the shuffler and the issuer that the application trusts. */
import { Delivery } from "./delivery.js";
import { Ledger } from "./ledgers/ledger.js";
import { Publications } from "./publications.js";
import { Session } from "./session.js";
import { Purse } from "./tokens/purse.js";
import { Tokens } from "./tokens/tokens.js";
export type Outcome = import("./delivery.js").Outcome;
export type Options = {
    /**
     * what this device has paid for; in browsers by default the origin's `IndexedDbLedger`
     */
    ledger?: Ledger;
    /**
     * address of the shuffler that the application trusts; no server can name one
     */
    shuffler?: string;
    /**
     * address of the issuer of upload tokens, where reports need some
     */
    issuer?: string;
    /**
     * what the application's backend signed for this device and an
     * experiment, if the issuer asks for it
     */
    attest?: import("./tokens/tokens.js").Attest;
    /**
     * what this device accepts
     */
    limits?: Partial<import("./verification.js").Limits>;
    /**
     * seconds for a request
     */
    timeout?: number;
    /**
     * seconds for which `report` tries to send
     */
    patience?: number;
    /**
     * told once of each feature whose value the spec has no place for, and of what
     * keeps upload tokens away; the message names the feature, never the value
     */
    warn?: (message: string) => void;
    /**
     * the server's public key (64 hexadecimal digits), or several while it is replaced; by
     * default the first one that the ledger meets
     */
    serverKeys?: string[];
    clock?: import("./platform.js").Clock;
};
/** @typedef {import("./delivery.js").Outcome} Outcome */
/**
 * @typedef {object} Options
 * @property {Ledger} [ledger] what this device has paid for; in browsers by default the origin's `IndexedDbLedger`
 * @property {string} [shuffler] address of the shuffler that the application trusts; no server can name one
 * @property {string} [issuer] address of the issuer of upload tokens, where reports need some
 * @property {import("./tokens/tokens.js").Attest} [attest] what the application's backend signed for this device and an
 * experiment, if the issuer asks for it
 * @property {Partial<import("./verification.js").Limits>} [limits] what this device accepts
 * @property {number} [timeout] seconds for a request
 * @property {number} [patience] seconds for which `report` tries to send
 * @property {(message: string) => void} [warn] told once of each feature whose value the spec has no place for, and of what
 * keeps upload tokens away; the message names the feature, never the value
 * @property {string[]} [serverKeys] the server's public key (64 hexadecimal digits), or several while it is replaced; by
 * default the first one that the ledger meets
 * @property {import("./platform.js").Clock} [clock]
 */
export declare class Client {
    server: string;
    shuffler: string | undefined;
    issuer: string | undefined;
    attest: import("./tokens/tokens.js").Attest | undefined;
    ledger: Ledger;
    /** @type {import("./verification.js").Limits} */
    limits: import("./verification.js").Limits;
    serverKeys: string[];
    timeout: number;
    patience: number;
    clock: {
        now: () => number;
        monotonic: () => number;
    };
    purse: Purse;
    delivery: Delivery;
    /** @type {Set<string>} */
    told: Set<string>;
    tell: (message: string) => void;
    /** Evidence that the server contradicted itself, as far as this page knows. @type {string | null} */
    contradiction: string | null;
    /** @param {string} server address of the learning server @param {Options} [options] */
    constructor(server: string, { ledger, shuffler, issuer, attest, limits, timeout, patience, warn, serverKeys, clock }?: Options);
    /**
     * Fetch the policy of an experiment, check it, and start this person's session. Before, make the reports that are due,
     * and send once those that wait. If the server does not answer, the session follows the last policy that was checked.
     * Where the application names an issuer, also get an upload token for each report that this device may still make.
     * @param {string} name
     */
    join(name: string): Promise<Session>;
    /**
     * Get the upload tokens for an experiment ahead, for instance a day before the person is asked to choose: the longer
     * before a report, the less its time tells whoever knows when tokens were issued.
     * @param {string} name @returns {Promise<number>} how many are left for reports
     */
    fetchTokens(name: string): Promise<number>;
    /** Get a token for each report that this device may still make to an experiment. @param {Publications} publications
     * @param {import("./publications.js").Published} published @param {number} end of the monotonic clock */
    filled(publications: Publications, { participation }: import("./publications.js").Published, end: number): Promise<void>;
    /** @param {string} name */
    tokens(name: string): Tokens;
    /** Warn of what keeps tokens away: the person gets an arm all the same. @param {Promise<void>} steps */
    warned(steps: Promise<void>): Promise<void>;
    /** The session of a choice that the device keeps, after a restart. It asks nobody. @param {string} name */
    resume(name: string): Promise<Session>;
    /** Make what is due, and send again what nobody has answered for good. @returns {Promise<Record<string, Outcome>>} by experiment */
    resend(): Promise<Record<string, Outcome>>;
    /**
     * Get tokens for the reports that wait without: the next `resend` sends them, apart from this request. Those whose tokens
     * the endpoint does not know get others if it never will.
     * @param {[string, import("./ledgers/ledger.js").Sealed][]} doubted
     */
    forTheNextTime(doubted: [string, import("./ledgers/ledger.js").Sealed][]): Promise<void>;
    /** @param {Publications} publications @param {import("./publications.js").Published} published */
    session(publications: Publications, published: import("./publications.js").Published): Promise<Session>;
    /** Whether the device reports this time: who reports one time of several comes only where they are asked, and has not reported.
     * @param {string} identity @param {import("./participation.js").Participation} participation @param {import("./ledgers/ledger.js").Entry} entry */
    isTime(identity: string, { asks, spec }: import("./participation.js").Participation, { payment }: import("./ledgers/ledger.js").Entry): Promise<boolean>;
    /** Make the reports that are due. @param {number} end of the monotonic clock */
    settle(end: number): Promise<Record<string, "not-asked" | "pending">>;
    /** Reports for this client's endpoints that nobody has answered. */
    waiting(): Promise<[string, import("./ledgers/ledger.js").Sealed][]>;
    /** The service that takes the reports of an endpoint. @param {string} endpoint */
    baseOf(endpoint: string): string;
    /** Experiments of this server in the ledger, in random order: one that hangs must not starve the rest. */
    own(): Promise<string[]>;
    /** The last signed head of the server's log, for comparing with other devices. @returns {Promise<string | null>} */
    head(): Promise<string | null>;
    /** What shows that the server contradicted itself, as JSON; null if nothing does. @returns {Promise<string | null>} */
    evidence(): Promise<string | null>;
    /** Refuse the server if the device holds evidence that it contradicted itself. */
    checkServer(): Promise<void>;
    /** The same, by what this page knows: `choose` cannot wait for the ledger. */
    refuse(): void;
    /** @param {string} name */
    identity(name: string): string;
    /** @param {string[]} messages */
    warn(messages: string[]): void;
}
