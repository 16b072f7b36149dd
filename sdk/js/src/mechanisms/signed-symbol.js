// @ts-check
/** One signed symbol for keyed means. */

import { Layout, bucket, sign } from "../coins.js";
import { KeyedSymbol, isInteger } from "./symbols.js";

export class SignedSymbol extends KeyedSymbol {
  static TYPE = "signed-symbol";

  /** @param {any} told the mechanism of the terms */
  constructor(told) {
    super(told, { buckets: isInteger, elsewhere: (one) => typeof one === "boolean" }, 2 * Math.max(0, told.buckets) + (told.elsewhere ? 1 : 0));
    this.layout = Layout.read(told.layout);
    this.buckets = told.buckets;
    this.elsewhere = told.elsewhere;
  }

  /** A person's own symbol, which is secret. @param {number} slot @param {number} key @param {number} level 0 or 1 */
  truth(slot, key, level) {
    if (key < 0) return this.elsewhere ? 2 * this.buckets : -1;
    const hash = this.layout.hash(slot, key);
    return 2 * bucket(hash, this.buckets) + (level > 0 === sign(hash) > 0 ? 1 : 0);
  }
}
