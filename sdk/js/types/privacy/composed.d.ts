/** What several messages of a person cost in a shuffled batch, each with coins of its own (docs/accounting.md). */
/** The same for a first look, which is an upper bound as well. */
export declare const COARSE = 64;
/**
 * So many shuffled symbols of a person, one composed with the other.
 * @param {number} local epsilon of a message @param {number} symbols of which there are so many for each own one
 * @param {number} honest @param {number} count messages of a report @param {number} [points] @returns {import("./curves.js").Curve}
 */
export declare function composedCurve(local: number, symbols: number, honest: number, count: number, points?: number): import("./curves.js").Curve;
