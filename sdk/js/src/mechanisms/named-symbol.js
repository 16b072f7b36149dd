// @ts-check
/** One symbol that names a person's key and their value, or a bucket of keys where epsilon is small. */

import { SlotLayout, sign } from "../coins.js";
import { malformed } from "../errors.js";
import { RandomizedResponse } from "../response.js";
import { report, signOf } from "./symbols.js";

const FIELDS = ["buckets", "epsilon", "layout", "type"];

export class NamedSymbol {
  static TYPE = "named-symbol";

  /** @param {any} told the mechanism of the terms */
  constructor(told) {
    const known = Object.keys(told).sort().join() === FIELDS.join();
    if (!known || !Number.isSafeInteger(told.buckets) || typeof told.epsilon !== "number") throw malformed("not a named symbol");
    this.layout = SlotLayout.read(told.layout);
    this.epsilon = told.epsilon;
    this.buckets = told.buckets;
    this.symbols = 2 * Math.max(0, told.buckets);
    this.response = new RandomizedResponse(told.epsilon, this.symbols);
  }

  /**
   * Randomize what a person contributes.
   * @param {{slot: number, key: number, value: number}} contribution key -1: nothing to tell; value in [0, 1]
   * @param {bigint[]} words three uniform words of 64 bits
   */
  randomize({ slot, key, value }, words) {
    const truth = key < 0 ? -1 : this.truth(slot, key, signOf(value, words[0]));
    return report(slot, this.response.randomize(truth, words.slice(1)));
  }

  /** A person's own symbol, which is secret. @param {number} slot @param {number} key @param {number} bit 1 or -1 */
  truth(slot, key, bit) {
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
