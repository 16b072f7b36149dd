/** One symbol that names a person's key and their value, or a bucket of keys where epsilon is small. */
import { KeyedSymbol } from "./symbols.js";
export declare class NamedSymbol extends KeyedSymbol {
    layout: import("../coins.js").Layout;
    buckets: any;
    static TYPE: string;
    /** @param {any} told the mechanism of the terms */
    constructor(told: any);
    /** A person's own symbol, which is secret. @param {number} slot @param {number} key @param {number} bit 1 or -1 */
    truth(slot: number, key: number, bit: number): number;
    /** Hashes put the keys in an order, in which they are dealt to buckets. @param {number} slot @param {number} key */
    bucket(slot: number, key: number): number;
}
