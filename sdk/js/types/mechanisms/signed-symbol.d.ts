/** One signed symbol for keyed means. */
import { Layout } from "../coins.js";
import { KeyedSymbol } from "./symbols.js";
export declare class SignedSymbol extends KeyedSymbol {
    layout: Layout;
    buckets: any;
    elsewhere: any;
    static TYPE: string;
    /** @param {any} told the mechanism of the terms */
    constructor(told: any);
    /** A person's own symbol, which is secret. @param {number} slot @param {number} key @param {number} bit 1 or -1 */
    truth(slot: number, key: number, bit: number): number;
}
