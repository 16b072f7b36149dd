/** The trust models, a row for each: who sees what, and which mechanisms answer which question. */
export type Question = "means" | "names" | "hits" | "directions";
export type Trust = {
    /**
     * who takes the reports
     */
    endpoint: "server" | "shuffler";
    /**
     * whether the server sees records as they are
     */
    curated: boolean;
    /**
     * whether an epsilon is promised
     */
    promises: boolean;
    /**
     * whether the promise counts on the honest people of a batch
     */
    batched: boolean;
    /**
     * the least delta above 0 that is certified
     */
    least: number;
    /**
     * mechanisms that may answer
     */
    serves: Record<Question, any[]>;
};
/** What a round asks of people. @typedef {"means" | "names" | "hits" | "directions"} Question */
/**
 * @typedef {object} Trust
 * @property {"server" | "shuffler"} endpoint who takes the reports
 * @property {boolean} curated whether the server sees records as they are
 * @property {boolean} promises whether an epsilon is promised
 * @property {boolean} batched whether the promise counts on the honest people of a batch
 * @property {number} least the least delta above 0 that is certified
 * @property {Record<Question, any[]>} serves mechanisms that may answer
 */
/** @type {Record<string, Trust>} */
export declare const TRUST: Record<string, Trust>;
/** Whether who comes back reports one time of all, drawn in advance: no crowd makes repetition cheap. @param {Trust} row */
export declare const drawsOne: (row: Trust) => boolean;
/** Whether the promise is about what becomes of many reports, among which a seen arm must not single one out. @param {Trust} row */
export declare const hidesArms: (row: Trust) => boolean;
/** What the adversary of the promise sees of a report, as a curve by honest people, and by the points of a grid where
 * one is needed; null: the record.
 * @param {Trust} row @param {any} mechanism
 * @returns {((honest: number, points?: number) => import("./privacy/curves.js").Curve) | null} */
export declare function seen(row: Trust, mechanism: any): ((honest: number, points?: number) => import("./privacy/curves.js").Curve) | null;
