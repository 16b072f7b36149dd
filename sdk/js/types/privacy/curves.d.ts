/** What events cost: for each a curve, delta at an epsilon. All are upper bounds (docs/accounting.md). */
export type Curve = (epsilon: number) => number;
/** What is pure: randomized response is the worst. @param {number} pure @returns {Curve} */
export declare const pureCurve: (pure: number) => Curve;
/** Normal noise, exactly (Balle and Wang 2018, Theorem 8). @param {number} deviation @param {number} sensitivity @returns {Curve} */
export declare const normalCurve: (deviation: number, sensitivity: number) => Curve;
/** One randomized response among shuffled ones. @param {number} local @param {number} symbols @param {number} honest @returns {Curve} */
export declare const shuffledCurve: (local: number, symbols: number, honest: number) => Curve;
/** One message of any randomizer of pure privacy among shuffled ones. @param {number} local @param {number} honest @returns {Curve} */
export declare const messageCurve: (local: number, honest: number) => Curve;
/**
 * Amplification by shuffling for any local message (Feldman, McMillan and Talwar, FOCS 2021, Theorem 3.2): with C ~
 * Bin(honest - 1, e^-local) clones and A ~ Bin(C, 1/2), A + Bern(q) against A + Bern(1 - q).
 * @param {number} epsilon @param {number} local @param {number} honest
 */
export declare function clonesDelta(epsilon: number, local: number, honest: number): number;
/** Epsilon of a curve that falls, to a few digits, rounded up. @param {Curve} curve @param {number} delta */
export declare function epsilonOf(curve: Curve, delta: number): number;
/** The smallest standard deviation of normal noise of sensitivity 1 that keeps a promise. @param {number} epsilon @param {number} delta */
export declare function normalDeviation(epsilon: number, delta: number): number;
