/** Merkle trees as in RFC 9162, section 2.1. Sizes may exceed 32 bits, so they are halved by division. */
import { same } from "./bytes.js";
export type Hash = Uint8Array<ArrayBuffer>;
/** @typedef {Uint8Array<ArrayBuffer>} Hash */
/** @param {Hash} entry */
export declare const leafHash: (entry: Hash) => Promise<Uint8Array<ArrayBuffer>>;
export { same };
/** Whether a proof shows that a leaf is in a tree. @param {Hash} leaf @param {number} index @param {number} size
 * @param {Hash[]} path @param {Hash} root */
export declare function included(leaf: Hash, index: number, size: number, path: Hash[], root: Hash): Promise<boolean>;
/** Whether a proof shows that one tree begins with another. @param {number} first @param {Hash} firstRoot
 * @param {number} second @param {Hash} secondRoot @param {Hash[]} path */
export declare function consistent(first: number, firstRoot: Hash, second: number, secondRoot: Hash, path: Hash[]): Promise<boolean>;
/** The complete subtrees over some leaves, the largest first. */
export declare class Peaks {
    size: number;
    hashes: Hash[];
    /** @param {number} size @param {Hash[]} hashes as many as the size has bits */
    constructor(size: number, hashes: Hash[]);
    /** Whether a list of this size has so many subtrees. */
    get fits(): boolean;
    /** @param {Hash} leaf */
    add(leaf: Hash): Promise<void>;
    root(): Promise<Hash>;
}
