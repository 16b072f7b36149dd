/** What a person tells about a context: vectors of length 1 at most. */
/** Shorter vectors have no direction. */
export declare const SHORTEST = 1e-100;
/** The public class of coins. @param {number} slot @param {bigint} seed @param {number} classes */
export declare function classOf(slot: number, seed: bigint, classes: number): number;
/** The expected reward of x theta, away from 0 and 1. @param {string} name @param {number} value */
export declare const link: (name: string, value: number) => number;
/** The second moments of a row, which is shortened to length 1: products, those of two coordinates times the root of 2. @param {number[]} row */
export declare function squares(row: number[]): number[];
