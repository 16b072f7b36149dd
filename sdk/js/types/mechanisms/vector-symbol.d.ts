/** A symbol for a vector, or several: public random directions near to it, by subset selection. */
import { SubsetResponse } from "../response.js";
import { Ball } from "../vectors.js";
export declare class VectorSymbol {
    ball: Ball;
    /** Of a message; all messages of a report together cost the local epsilon. */
    epsilon: number;
    messages: number;
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
    /**
     * Were all people's first messages permuted apart, and so on, more would be seen: events that compose.
     * @param {number} honest @param {number} [points] of the grid on which several compose
     */
    shuffled(honest: number, points?: number): import("../privacy/curves.js").Curve;
    /** A public unit vector, of one coordinate more than the ball has. @param {number} slot @param {number} index */
    direction(slot: number, index: number): number[];
    /** A person's own symbols, in no order; secret. @param {number} slot @param {number[]} vector */
    own(slot: number, vector: number[]): number[];
    /**
     * All messages, one after the other. Those after the first have fresh coins: the low bits of the words that are drawn
     * first. Then come a word of every message for keeping, one for which of its own symbols, and one for the uniform one.
     * @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise
     */
    randomize({ slot, vector }: import("./index.js").Contribution, noise: import("../platform.js").Noise): Uint8Array<ArrayBuffer>;
}
