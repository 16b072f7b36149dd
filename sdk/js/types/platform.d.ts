/** All that a device takes from its platform: browsers and Node have the same names for it, where they have it. */
/** The part of WebCrypto that seals; pages that are not secure have none. @returns {SubtleCrypto} */
export declare function subtle(): SubtleCrypto;
/** @template {Uint8Array<ArrayBuffer> | Uint32Array<ArrayBuffer> | BigUint64Array<ArrayBuffer>} T @param {T} into @returns {T} */
export declare function random<T extends Uint8Array<ArrayBuffer> | Uint32Array<ArrayBuffer> | BigUint64Array<ArrayBuffer>>(into: T): T;
export type Noise = (count: number) => bigint[];
/** A source of uniform words of 64 bits. @typedef {(count: number) => bigint[]} Noise */
/** The operating system's. @type {Noise} */
export declare const secureNoise: Noise;
/** Fresh public coins; draw them before looking at the context. */
export declare const coins: () => number;
/** A uniform number below a limit, by rejection. @param {number} limit */
export declare function below(limit: number): number;
/** Seconds since 1970, and of a clock that nobody sets. */
export declare const systemClock: {
    now: () => number;
    monotonic: () => number;
};
export type Clock = typeof systemClock;
/** @typedef {typeof systemClock} Clock */
/** @param {number} seconds @returns {Promise<void>} */
export declare const pause: (seconds: number) => Promise<void>;
/**
 * What is missing here for a device to report; empty where nothing is. Ask before you join, and show the page without
 * an experiment where something is missing.
 * @returns {Promise<string[]>}
 */
export declare function missing(): Promise<string[]>;
