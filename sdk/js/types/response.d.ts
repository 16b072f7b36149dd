/** Randomized response and subset selection, whose probabilities are certified in exact integers. */
/** What sends a symbol of the person's own with a fixed probability, and otherwise a uniform one of all. */
declare class Response {
    symbols: bigint;
    /** Words below it send an own symbol. */
    threshold: bigint;
    /** @param {number} epsilon pure local privacy of a symbol @param {number} symbols size of the alphabet @param {number} own */
    constructor(epsilon: number, symbols: number, own: number);
}
export declare class RandomizedResponse extends Response {
    /** @param {number} epsilon @param {number} symbols */
    constructor(epsilon: number, symbols: number);
    /**
     * Keep the true symbol if the first word is below the threshold; else send a uniform one.
     * @param {number} truth -1: there is none @param {bigint[]} words two, uniform of 64 bits
     */
    randomize(truth: number, words: bigint[]): number;
}
export declare class SubsetResponse extends Response {
    /**
     * Send one of the own symbols if the first word is below the threshold, the second word says which; else a uniform one.
     * @param {number[]} own @param {bigint[]} words three, uniform of 64 bits
     */
    randomize(own: number[], words: bigint[]): number;
}
export {};
