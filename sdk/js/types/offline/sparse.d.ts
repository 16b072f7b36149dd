/** High-dimensional bandits, for deciding alone: coefficients of few of an arm's features. */
export declare class SparseDecider {
    version: any;
    cohort: string;
    places: number[];
    coefficients: number[];
    intercepts: number[];
    playable: number[];
    explores: any;
    seed: bigint;
    width: number;
    /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
    constructor(told: any, spec: import("../spec.js").Spec);
    /** @param {import("../spec.js").Spec} spec */
    check(spec: import("../spec.js").Spec): void;
    /** @param {number[]} columns @param {number} slot @returns {number} an arm */
    decide(columns: number[], slot: number): number;
}
