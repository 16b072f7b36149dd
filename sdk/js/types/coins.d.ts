/** Public coins: what 32 public random bits say at each key of a round. */
/** Thresholds are in parts of this. */
export declare const UNIT = 65536;
/** SplitMix64's finalizer. @param {bigint} word */
export declare function mix(word: bigint): bigint;
/** @param {bigint} hash */
export declare const sign: (hash: bigint) => -1 | 1;
/** @param {bigint} hash @param {number} buckets */
export declare const bucket: (hash: bigint, buckets: number) => number;
/** The public plan of a round: its keys, and how coins spread over the groups of each. */
export declare class Layout {
    seed: bigint;
    thresholds: number[][];
    groups: number;
    /** @param {bigint} seed @param {number[][]} thresholds one row a key @param {number} groups */
    constructor(seed: bigint, thresholds: number[][], groups: number);
    /** @param {any} told `{seed, thresholds}` as a policy has it @returns {Layout} */
    static read(told: any): Layout;
    get keys(): number;
    /** Whether thresholds rise and are at most 65,536. */
    get rises(): boolean;
    /** @param {number} slot @param {number} key */
    hash(slot: number, key: number): bigint;
    /** @param {bigint} hash @param {number} key */
    group(hash: bigint, key: number): number;
    /** Share of the coins in each group of a key, in parts of 65,536. @param {number} key */
    shares(key: number): number[];
}
/** A plan in which one hash of the coins decides the group at all keys. */
export declare class SlotLayout extends Layout {
    /** @param {number} slot @param {number} key */
    hash(slot: number, key: number): bigint;
}
