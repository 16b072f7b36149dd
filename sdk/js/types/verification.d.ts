/** How a device checks the terms of a round: it computes everything anew, and never trusts the server's numbers. */
export type Limits = {
    /**
     * the most that all reports to an experiment together may cost under its trust model
     */
    epsilon: number;
    delta: number;
    /**
     * the most that they may cost if everybody else colludes
     */
    local_epsilon: number;
    /**
     * the largest share of a batch that the promise may count on
     */
    honest_fraction: number;
    /**
     * the fewest reports of a batch
     */
    min_batch: number;
    /**
     * "hidden": nobody who gets reports, or reads releases, sees which arm this person got
     */
    arms: "seen" | "hidden";
    /**
     * whether records may be sent to the server as they are, for it to protect or not; where it
     * does not, `epsilon` must be Infinity as well
     */
    curator: boolean;
};
/**
 * What a device accepts; the application sets it, never a server.
 * @typedef {object} Limits
 * @property {number} epsilon the most that all reports to an experiment together may cost under its trust model
 * @property {number} delta
 * @property {number} local_epsilon the most that they may cost if everybody else colludes
 * @property {number} honest_fraction the largest share of a batch that the promise may count on
 * @property {number} min_batch the fewest reports of a batch
 * @property {"seen" | "hidden"} arms "hidden": nobody who gets reports, or reads releases, sees which arm this person got
 * @property {boolean} curator whether records may be sent to the server as they are, for it to protect or not; where it
 * does not, `epsilon` must be Infinity as well
 */
/** @type {Limits} */
export declare const LIMITS: Limits;
export type Mechanism = import("./mechanisms/index.js").Mechanism;
export type Spec = import("./spec.js").Spec;
export type Round = import("./publication.js").Round;
/** @typedef {import("./mechanisms/index.js").Mechanism} Mechanism */
/** @typedef {import("./spec.js").Spec} Spec */
/** @typedef {import("./publication.js").Round} Round */
/**
 * Refuse terms that miss the spec's promise or the device's limits.
 * @param {any} terms @param {Mechanism} mechanism @param {Spec} spec @param {Round} round @param {Limits} limits
 */
export declare function verify(terms: any, mechanism: Mechanism, spec: Spec, round: Round, limits: Limits): void;
/** What is left if everybody else colludes; where records are sent that is nothing. @param {Mechanism} mechanism @param {Spec} spec */
export declare const localCost: (mechanism: Mechanism, { trust, reports, bound }: Spec) => number;
/** People of a batch that the promise counts on, rounded down to three digits.
 * @param {import("./spec.js").Privacy} privacy @param {number} fewest */
export declare function honestPeople(privacy: import("./spec.js").Privacy, fewest: number): number;
