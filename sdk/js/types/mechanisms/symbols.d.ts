/** What reports of one symbol have in common. */
import { RandomizedResponse } from "../response.js";
/** 1 with the probability of a value in [0, 1], else -1. @param {number} value @param {bigint} word */
export declare const signOf: (value: number, word: bigint) => -1 | 1;
/** Coins and symbol. @param {number} slot @param {number} symbol */
export declare function report(slot: number, symbol: number): Uint8Array<ArrayBuffer>;
/** @param {any} told @param {string[]} names */
export declare const hasFields: (told: any, names: string[]) => boolean;
/** A report of one symbol about a key, which randomized response protects. */
export declare class KeyedSymbol {
    localEpsilon: number;
    symbols: number;
    messages: number;
    reportSize: number;
    sampling: number;
    response: RandomizedResponse;
    /** @param {any} told @param {number} symbols */
    constructor(told: any, symbols: number);
    /** @returns {import("../privacy/curves.js").Curve} */
    alone(): import("../privacy/curves.js").Curve;
    /** @param {number} honest @returns {import("../privacy/curves.js").Curve} */
    shuffled(honest: number): import("../privacy/curves.js").Curve;
    /** A person's own symbol, which is secret; -1: there is none. @param {number} _slot @param {number} _key @param {number} _bit 1 or -1 @returns {number} */
    truth(_slot: number, _key: number, _bit: number): number;
    /**
     * Randomize what a person contributes.
     * @param {import("./index.js").Contribution} contribution key -1: nothing to tell; value in [0, 1]
     * @param {import("../platform.js").Noise} noise
     */
    randomize({ slot, key, value }: import("./index.js").Contribution, noise: import("../platform.js").Noise): Uint8Array<ArrayBuffer>;
}
