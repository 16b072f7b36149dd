// @ts-check
/** One signed symbol for keyed means. */

import { Layout, bucket, sign } from "../coins.js";
import { malformed } from "../errors.js";
import { RandomizedResponse } from "../response.js";
import { report, signOf } from "./symbols.js";

const FIELDS = ["buckets", "elsewhere", "epsilon", "layout", "type"];

export class SignedSymbol {
  static TYPE = "signed-symbol";

  /** @param {any} told the mechanism of the terms */
  constructor(told) {
    const known = Object.keys(told).sort().join() === FIELDS.join();
    const typed = Number.isSafeInteger(told.buckets) && typeof told.elsewhere === "boolean" && typeof told.epsilon === "number";
    if (!known || !typed) throw malformed("not a signed symbol");
    this.layout = Layout.read(told.layout);
    this.epsilon = told.epsilon;
    this.buckets = told.buckets;
    this.elsewhere = told.elsewhere;
    this.symbols = 2 * Math.max(0, told.buckets) + (told.elsewhere ? 1 : 0);
    this.response = new RandomizedResponse(told.epsilon, this.symbols);
  }

  /**
   * Randomize what a person contributes.
   * @param {{slot: number, key: number, value: number}} contribution key -1: nothing to tell; value in [0, 1]
   * @param {bigint[]} words three uniform words of 64 bits
   */
  randomize({ slot, key, value }, words) {
    const truth = this.truth(slot, key, signOf(value, words[0]));
    return report(slot, this.response.randomize(truth, words.slice(1)));
  }

  /** A person's own symbol, which is secret. @param {number} slot @param {number} key @param {number} bit 1 or -1 */
  truth(slot, key, bit) {
    if (key < 0) return this.elsewhere ? 2 * this.buckets : -1;
    const hash = this.layout.hash(slot, key);
    return 2 * bucket(hash, this.buckets) + (bit * sign(hash) > 0 ? 1 : 0);
  }
}
