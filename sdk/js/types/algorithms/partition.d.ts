/** The partition bandit: bins of contexts, with active arms in each. */
import { Layout } from "../coins.js";
export declare class PartitionPolicy {
    version: any;
    cohort: any;
    dimension: any;
    axes: number[];
    depths: number[];
    paths: number[];
    active: number[][];
    bins: number[];
    wholes: number[];
    reported: Layout;
    freshCoins: boolean;
    layout: Layout;
    batched: boolean;
    /** What a round asks. @type {import("../trust.js").Question} */
    static QUESTION: import("../trust.js").Question;
    /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
    constructor(told: any, spec: import("../spec.js").Spec);
    /** Whether a report says how many versions ago its decision was made. */
    get tellsAge(): boolean;
    /** Whether the round takes reports on decisions of this round alone. */
    get takesOwnAlone(): boolean;
    /** Wholes, and arms that are active in one of their bins, in order: where the arm is in the key, these are the keys. */
    get cells(): number[][];
    /** @param {import("../spec.js").Spec} spec @param {number} batch */
    check(spec: import("../spec.js").Spec, batch: number): void;
    /** Least path of 40 bits in a bin. @param {number} bin */
    start(bin: number): number;
    /** Whether the bins, in order, cover everything once. */
    tiles(): boolean;
    /** The bin of a context. @param {number[]} columns */
    locate(columns: number[]): number;
    /** @param {number[]} columns @param {number} slot @returns {number} an arm */
    decide(columns: number[], slot: number): number;
    /** The key that a report is about; -1: there is nothing to tell. @param {number[]} columns @param {number} arm */
    key(columns: number[], arm: number): number;
    /** What an application tells, in [0, 1]. @param {any} told @param {import("../spec.js").Spec} spec */
    read(told: any, spec: import("../spec.js").Spec): number[];
    /** What a person contributes. @param {number[]} columns @param {number} arm @param {number[]} values as `read` gave them */
    contribute(columns: number[], arm: number, values: number[]): {
        key: number;
        value: number;
    };
}
