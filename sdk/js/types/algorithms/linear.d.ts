/** Linear and generalized linear bandits: Thompson sampling by public coins. */
import { Design } from "./linear/design.js";
export declare class LinearPolicy {
    version: any;
    cohort: string;
    design: Design;
    link: any;
    means: number[][];
    factors: number[][][];
    whitening: number[][];
    telling: number[][];
    exploration: any;
    playable: number[];
    favours: any;
    share: any;
    seed: bigint;
    batched: boolean;
    classes: any;
    /** What a round asks. @type {import("../trust.js").Question} */
    static QUESTION: import("../trust.js").Question;
    /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
    constructor(told: any, spec: import("../spec.js").Spec);
    /** Whether a report has coins of its own: those of a choice are sent only if they tell a class. */
    get freshCoins(): boolean;
    /** Whether a report says how many versions ago its decision was made. */
    get tellsAge(): boolean;
    /** Whether the round takes reports on decisions of this round alone. */
    get takesOwnAlone(): boolean;
    /** Arms that people may get. */
    get played(): number[];
    /** @param {any} told @param {import("../spec.js").Spec} spec */
    check(told: any, spec: import("../spec.js").Spec): void;
    /** Share of a report that is second moments of contexts. @param {import("../spec.js").Spec} spec */
    shareOf({ trust, privacy }: import("../spec.js").Spec): number;
    /** Length of a person's vector. */
    get coordinates(): number;
    /** @param {number[]} columns @param {number} slot @returns {number} an arm */
    decide(columns: number[], slot: number): number;
    /** The normal coins of every arm, of which those arms that are played have the largest at one that is public. @param {number} slot */
    normals(slot: number): number[];
    /** What an application tells, in [0, 1]. @param {any} told @param {import("../spec.js").Spec} spec */
    read(told: any, spec: import("../spec.js").Spec): number[];
    /** A person's vector: the arm is the place of a block in it. @param {number[]} columns @param {number} arm @param {number[]} values as `read` gave them */
    contribute(columns: number[], arm: number, values: number[]): {
        vector: number[];
    };
    /** @param {number[]} block @param {number} arm */
    inBlock(block: number[], arm: number): number[];
}
