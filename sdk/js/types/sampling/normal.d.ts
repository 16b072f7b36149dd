/** Normal noise on a grid of integers from random words, as `privateer_core.sampling.normal` has it: floating point leaks nothing. */
/** Noise is drawn up to so many standard deviations, and to the end of a bin. */
export declare const REACH = 11.3;
/** What drawing so many numbers adds to delta, for epsilon up to 30. @param {number} count */
export declare const samplingCost: (count: number) => number;
/** Draws integers distributed as a normal variable rounded to the nearest one. */
export declare class RoundedNormal {
    deviation: number;
    width: number;
    heads: number[];
    words: bigint[];
    /** @type {bigint[]} */
    edges: bigint[];
    scales: number[];
    /** @param {number} deviation in grid units */
    constructor(deviation: number);
    /** The probability of an integer, up to a constant: the density's average over an interval of length 1. @param {number} magnitude */
    weight(magnitude: number): number;
    /** @param {import("../platform.js").Noise} noise @returns {number} */
    draw(noise: import("../platform.js").Noise): number;
    /** An integer, or null where it is not accepted. @param {bigint[]} words three */
    propose([pick, place, accept]: bigint[]): number | null;
}
