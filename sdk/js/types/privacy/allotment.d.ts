/** What each of a person's several reports may cost, so that all of them together keep one promise (docs/returning.md). */
export type Allotment = {
    at: number;
    most: number;
}[];
/**
 * Share a promise out to several reports: a public rule, computed anew.
 * @param {number} epsilon @param {number} delta @param {number} reports 2 at least @param {number} least slack @returns {Allotment}
 */
export declare function allot(epsilon: number, delta: number, reports: number, least: number): Allotment;
/**
 * Whether a report costs no more than the allotment.
 * @param {Allotment} allotment @param {(honest: number) => import("./curves.js").Curve} curve @param {number} honest
 * @param {number} sampling what the sampler of noise may add to delta
 */
export declare function covers(allotment: Allotment, curve: (honest: number) => import("./curves.js").Curve, honest: number, sampling: number): boolean;
