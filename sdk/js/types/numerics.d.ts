/** Normal probabilities, to the last digits. */
/** The normal number of a 64-bit word, by its upper 53 bits; finite, whatever the word. @param {bigint} word */
export declare const normalOf: (word: bigint) => number;
/** The normal quantile. @param {number} share in (0, 1) */
export declare function normalQuantile(share: number): number;
/** The logarithm of the normal distribution function. @param {number} x @returns {number} */
export declare function logNormal(x: number): number;
/** To the nearest whole number; of two, to the even one. @param {number} value */
export declare function rounded(value: number): number;
