/** Choices by an exported policy: nothing is fetched, nothing is reported, nothing is kept. */
import { readPublication } from "../publication.js";
import { Spec } from "../spec.js";
export type Chosen = string | Record<string, number> | number[] | Record<string, number[]>;
/**
 * What is chosen: the name of an arm; how often each action is played, by its row; or a point as its coordinates, or two
 * points by the names `first` and `second`.
 * @typedef {string | Record<string, number> | number[] | Record<string, number[]>} Chosen
 */
/**
 * The policy of an exported experiment. It decides as the device of a person would who comes after the export, and it
 * needs neither a server nor a ledger: nothing is reported, so nobody learns from these choices, and they cost no privacy.
 * `OfflinePolicy.read` makes it.
 */
export declare class OfflinePolicy {
    spec: Spec;
    /** @type {any} */
    decider: any;
    /** Where the experiment stood when it was exported. A policy of one that was still open goes on trying arms. */
    experiment: string;
    version: number;
    status: import("../answer.js").Status;
    /** What the experiment had found; null if its algorithm publishes no result. */
    result: import("./document.js").Result;
    warn: (message: string) => void;
    /** @type {Set<string>} */
    warned: Set<string>;
    /**
     * Read the file that `privateer export NAME FILE.json` wrote, and check it.
     * @param {string | Uint8Array} file its text or bytes
     * @param {{warn?: (message: string) => void}} [how] `warn` is told once of each feature whose value the spec has no place
     * for; the message names the feature, never the value
     * @throws {PrivateerError} `spec-invalid`: the file is no export, is damaged, is of another format, or has a policy that
     * this version of the library cannot follow
     */
    static read(file: string | Uint8Array, { warn }?: {
        warn?: (message: string) => void;
    }): Promise<OfflinePolicy>;
    /** @param {import("./document.js").Export} found @param {Awaited<ReturnType<typeof readPublication>>} publication
     * @param {(message: string) => void} warn */
    constructor(found: import("./document.js").Export, { round, spec: body, policy, drain }: Awaited<ReturnType<typeof readPublication>>, warn: (message: string) => void);
    /** Names of the features that `choose` asks for, in order. */
    get features(): string[];
    /** Names of what can be chosen: arms, rows of actions, or coordinates. */
    get options(): string[];
    /**
     * Choose for a person.
     * @param {Record<string, any>} [context] a value for each feature
     * @param {number} [coins] 32 bits that decide where the policy draws among several arms: the same coins and context choose
     * the same. By default they come from the platform's secure random numbers
     * @template {Chosen} [T=string]
     * @returns {T} the name of an arm; where there are none, another one of `Chosen`
     */
    choose<T extends Chosen = string>(context?: Record<string, any>, coins?: number): T;
}
