// @ts-check
/** One symbol that names a person's key and their value, or a bucket of keys where epsilon is small. */

import { SlotLayout, sign } from "../coins.js";
import { malformed } from "../errors.js";
import { KeyedSymbol, hasFields } from "./symbols.js";

const FIELDS = ["buckets", "epsilon", "layout", "type"];

export class NamedSymbol extends KeyedSymbol {
  static TYPE = "named-symbol";

  /** @param {any} told the mechanism of the terms */
  constructor(told) {
    const typed = Number.isSafeInteger(told.buckets) && typeof told.epsilon === "number";
    if (!hasFields(told, FIELDS) || !typed) throw malformed("not a named symbol");
    super(told, 2 * Math.max(0, told.buckets));
    this.layout = SlotLayout.read(told.layout);
    this.buckets = told.buckets;
  }

  /** A person's own symbol, which is secret. @param {number} slot @param {number} key @param {number} bit 1 or -1 */
  truth(slot, key, bit) {
    if (key < 0) return -1;
    if (this.buckets === Math.max(1, this.layout.keys)) return 2 * key + (bit > 0 ? 1 : 0);
    return 2 * this.bucket(slot, key) + (bit * sign(this.layout.hash(slot, key)) > 0 ? 1 : 0);
  }

  /** Hashes put the keys in an order, in which they are dealt to buckets. @param {number} slot @param {number} key */
  bucket(slot, key) {
    if (this.buckets === 1) return 0;
    const place = (/** @type {number} */ one) => (this.layout.hash(slot, one) >> 24n) & 0xffffffffn;
    const own = place(key);
    let before = 0;
    for (let one = 0; one < this.layout.keys; one++) {
      const other = place(one);
      if (other < own || (other === own && one < key)) before += 1;
    }
    return before % this.buckets;
  }
}
