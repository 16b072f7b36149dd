/** Taking part in one round: checked terms, decisions, and sealed reports. */
import { readPublication } from "./publication.js";
import { Spec } from "./spec.js";
export type Choice = {
    version: number;
    digest: string;
    meaning: string;
    columns: number[];
    slot: number;
    arm: number;
    values: number[];
    window: number;
    due: number | null;
    period: number;
    retired?: string[];
};
/**
 * What was decided for a person, and what came of it as the policy reads it. `due` is when the report on it may be made,
 * in seconds since 1970; null: when its outcome is told.
 * @typedef {{version: number, digest: string, meaning: string, columns: number[], slot: number, arm: number,
 *   values: number[], window: number, due: number | null, period: number, retired?: string[]}} Choice the arms that nobody got
 * any more; one of an earlier version does not say
 */
/** A publication that this device has checked and will follow. */
export declare class Participation {
    round: import("./publication.js").Round;
    spec: Spec;
    terms: any;
    mechanism: import("./mechanisms/records.js").CellPairs | import("./mechanisms/records.js").CentralSums | import("./mechanisms/vector-noise.js").CentralVectors | import("./mechanisms/vector-noise.js").GaussianVectors | import("./mechanisms/named-symbol.js").NamedSymbol | import("./mechanisms/signed-symbol.js").SignedSymbol | import("./mechanisms/vector-symbol.js").VectorSymbol | null;
    /** @type {import("./algorithms/index.js").Policy} */
    policy: import("./algorithms/index.js").Policy;
    decider: import("./algorithms/index.js").Policy;
    drains: boolean;
    header: (string | number | Uint8Array<ArrayBuffer>)[];
    digest: Uint8Array<ArrayBuffer>;
    isOpen: boolean;
    /**
     * @param {Uint8Array<ArrayBuffer>} body the publication @param {string} name the experiment that was asked for
     * @param {import("./verification.js").Limits} limits @param {boolean} paused whether the server says that nobody is asked
     */
    static checked(body: Uint8Array<ArrayBuffer>, name: string, limits: import("./verification.js").Limits, paused?: boolean): Promise<Participation>;
    /** @param {Awaited<ReturnType<typeof readPublication>>} publication @param {string} name
     * @param {import("./verification.js").Limits} limits @param {boolean} paused */
    constructor(publication: Awaited<ReturnType<typeof readPublication>>, name: string, limits: import("./verification.js").Limits, paused: boolean);
    /** Refuse a publication whose parts disagree. @param {string} name */
    agree(name: string): void;
    /** Whether the round takes a report on what this person chooses now. */
    get asks(): boolean;
    /**
     * @param {Record<string, any>} context @param {number} [slot] for tests; by default fresh coins
     * @param {number} [now] seconds since 1970 @returns {Choice}
     */
    choose(context: Record<string, any>, slot?: number, now?: number): Choice;
    /** Refuse a publication under which a choice means something else. @param {Choice} choice */
    check(choice: Choice): void;
    /**
     * Whether a choice that is kept is still the person's: not once its report is due, nor once another arm is retired.
     * Where the experiment waits for outcomes nothing else ends it before. Elsewhere it ends with its period, when nobody is
     * asked, and when no report on it would count.
     * @param {Choice} choice @param {number} now seconds since 1970
     */
    stands(choice: Choice, now: number): boolean;
    /** Whether the report on a choice is due, and a round like this one may take it. @param {Choice} choice @param {number} now */
    waits(choice: Choice, now: number): boolean;
    /** Whether a choice means here what it meant when it was made. @param {Choice} choice */
    means(choice: Choice): boolean;
    /** Whether the round takes a report on a choice of this version. @param {number} decided */
    takes(decided: number): boolean;
    /** Whether a report on a choice of this version means something to the round. @param {number} decided */
    counts(decided: number): boolean;
    /** @param {number} decided */
    age(decided: number): number | null;
    /**
     * What a report is before it is sealed: its messages, one after the other.
     * @param {Choice} choice @param {import("./platform.js").Noise} noise @param {number} fresh coins of the report
     */
    message(choice: Choice, noise?: import("./platform.js").Noise, fresh?: number): Uint8Array<ArrayBuffer>;
    /**
     * What is sent: an envelope of the messages, each sealed by itself with an id of its own.
     * @param {Uint8Array<ArrayBuffer>} messages one after the other
     * @param {Uint8Array<ArrayBuffer>[]} [ids] for tests @param {CryptoKeyPair[]} [ephemerals] for tests
     */
    body(messages: Uint8Array<ArrayBuffer>, ids?: Uint8Array<ArrayBuffer>[], ephemerals?: CryptoKeyPair[]): Promise<Uint8Array<ArrayBuffer>>;
}
