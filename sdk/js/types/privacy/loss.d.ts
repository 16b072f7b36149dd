/** Privacy losses on a grid, and how several add up: certified upper bounds of delta (docs/accounting.md). */
export type Loss = {
    first: number;
    mass: Float64Array;
    infinite: number;
};
/**
 * A pair that dominates everything whose delta is at most this one in both directions, on the grid of a step up to so
 * many points (Doroshenko et al., PoPETs 2022).
 * @param {import("./curves.js").Curve} curve @param {number} step @param {number} points @returns {Loss}
 */
export declare function lossOf(curve: import("./curves.js").Curve, step: number, points: number): Loss;
/** The same loss so many times. @param {Loss} loss @param {number} count at least 1 @returns {Loss} */
export declare function repeated(loss: Loss, count: number): Loss;
/** @param {Loss} loss @param {number} step @param {number} epsilon */
export declare function deltaOf({ first, mass, infinite }: Loss, step: number, epsilon: number): number;
