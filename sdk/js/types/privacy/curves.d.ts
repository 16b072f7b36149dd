/** What events cost: for each a curve, delta at an epsilon. All are upper bounds (docs/accounting.md). */
export type Curve = (epsilon: number) => number;
/** What is pure: randomized response is the worst. @param {number} pure @returns {Curve} */
export declare const pureCurve: (pure: number) => Curve;
/** Normal noise, exactly (Balle and Wang 2018, Theorem 8). @param {number} deviation @param {number} sensitivity @returns {Curve} */
export declare const normalCurve: (deviation: number, sensitivity: number) => Curve;
/** One randomized response among shuffled ones, or one subset selection of that many symbols for each own one. @param {number} local @param {number} symbols @param {number} honest @returns {Curve} */
export declare const shuffledCurve: (local: number, symbols: number, honest: number) => Curve;
/** Epsilon of a curve that falls, to a few digits, rounded up. @param {Curve} curve @param {number} delta */
export declare function epsilonOf(curve: Curve, delta: number): number;
/** The smallest standard deviation of normal noise of sensitivity 1 that keeps a promise. @param {number} epsilon @param {number} delta */
export declare function normalDeviation(epsilon: number, delta: number): number;
