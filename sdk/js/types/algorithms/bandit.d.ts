/** Bandits without context: shares of arms, the same for everybody. */
import { Layout } from "../coins.js";
export declare class BanditPolicy {
    version: any;
    cohort: string;
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
    /** The arms that anybody gets: where the arm is in the key, these are the keys. */
    get cells(): number[];
    /** @param {import("../spec.js").Spec} spec @param {number} batch */
    check(spec: import("../spec.js").Spec, batch: number): void;
    /** @param {number[]} _columns @param {number} slot @returns {number} an arm */
    decide(_columns: number[], slot: number): number;
    /** What an application tells, in [0, 1]. @param {any} told @param {import("../spec.js").Spec} spec */
    read(told: any, spec: import("../spec.js").Spec): number[];
    /** What a person contributes. @param {number[]} _columns @param {number} arm @param {number[]} values as `read` gave them */
    contribute(_columns: number[], arm: number, values: number[]): {
        key: number;
        value: number;
    };
}
