/** One symbol for a vector: one of the public random directions nearest to it, by subset selection. */
import { SubsetResponse } from "../response.js";
import { Ball } from "../vectors.js";
export declare class VectorSymbol {
    ball: Ball;
    localEpsilon: number;
    directions: number;
    chosen: number;
    classes: number;
    seed: bigint;
    reportSize: number;
    sampling: number;
    response: SubsetResponse;
    static TYPE: string;
    /** @param {any} told */
    constructor(told: any);
    alone(): import("../privacy/curves.js").Curve;
    /** @param {number} honest */
    shuffled(honest: number): import("../privacy/curves.js").Curve;
    /** A public unit vector, of one coordinate more than the ball has. @param {number} slot @param {number} index */
    direction(slot: number, index: number): number[];
    /** A person's own symbols, in no order; secret. @param {number} slot @param {number[]} vector */
    own(slot: number, vector: number[]): number[];
    /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
    randomize({ slot, vector }: import("./index.js").Contribution, noise: import("../platform.js").Noise): Uint8Array<ArrayBuffer>;
}
