/** A trial: arms against a control, by segments of people. */
export type Question = {
    share: number;
    fact: number | null;
    everybody: boolean;
};
/** @typedef {{share: number, fact: number | null, everybody: boolean}} Question what coins may ask; see docs/foreign-clients.md */
/** One feature that parts people. */
declare class Factor {
    column: any;
    columns: any;
    flagged: any;
    codes: number[];
    cuts: number[];
    parts: number;
    /** @param {any} told */
    constructor(told: any);
    /** @param {number[]} columns */
    locate(columns: number[]): number;
}
export declare class TrialPolicy {
    version: any;
    cohort: string;
    factors: Factor[];
    layout: import("../coins.js").Layout;
    reported: import("../coins.js").Layout;
    freshCoins: boolean;
    batched: boolean;
    guardrails: string[];
    /** @type {Question[]} */
    questions: Question[];
    arms: number;
    segments: number;
    /** What a round asks. @type {import("../trust.js").Question} */
    static QUESTION: import("../trust.js").Question;
    /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
    constructor(told: any, spec: import("../spec.js").Spec);
    /** Whether a report says how many versions ago its decision was made. */
    get tellsAge(): boolean;
    /** Whether the round takes reports on decisions of this round alone. */
    get takesOwnAlone(): boolean;
    /** @param {import("../spec.js").Spec} spec @param {any} told */
    check(spec: import("../spec.js").Spec, told: any): void;
    /** Whether each question has the same coins in every segment and all arms alike; about everybody, each arm the same. */
    asksEvenly(): boolean;
    /** The segment of a context. @param {number[]} columns */
    locate(columns: number[]): number;
    /** @param {number[]} columns @param {number} slot @returns {number} an arm */
    decide(columns: number[], slot: number): number;
    /**
     * What an application tells: the reward in [0, 1], then 1 or 0 for each guardrail. What is not given, or does not fit,
     * counts as no outcome, and as no.
     * @param {any} told @param {import("../spec.js").Spec} spec
     */
    read(told: any, spec: import("../spec.js").Spec): number[];
    /**
     * What a person contributes.
     * @param {number[]} columns @param {number} arm @param {number[]} values as `read` gave them @param {number} slot coins of the choice
     */
    contribute(columns: number[], arm: number, values: number[], slot: number): {
        key: number;
        value: number;
    };
}
export {};
