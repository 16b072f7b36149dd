/** Records that a curator sees: a key and a value on a grid. The noise of what is released is the curator's. */
import { Layout } from "../coins.js";
/** Sums of scores per cell and people per key. */
export declare class CentralSums {
    layout: Layout;
    deviation: number;
    scale: number;
    localEpsilon: number;
    messages: number;
    reportSize: number;
    sampling: number;
    static TYPE: string;
    /** @param {any} told */
    constructor(told: any);
    /** What a release reveals; null: the record. @returns {import("../privacy/curves.js").Curve | null} */
    released(): import("../privacy/curves.js").Curve | null;
    /** @param {import("./index.js").Contribution} contribution */
    randomize({ slot, key, value }: import("./index.js").Contribution): Uint8Array<ArrayBuffer>;
}
/** Sums of values and of their rests per key. */
export declare class CellPairs {
    layout: Layout;
    scale: number;
    localEpsilon: number;
    messages: number;
    reportSize: number;
    sampling: number;
    static TYPE: string;
    /** @param {any} told */
    constructor(told: any);
    /** What a release reveals; null: the record. @returns {import("../privacy/curves.js").Curve | null} */
    released(): import("../privacy/curves.js").Curve | null;
    /** @param {import("./index.js").Contribution} contribution */
    randomize({ key, value }: import("./index.js").Contribution): Uint8Array<ArrayBuffer>;
}
