// @ts-check
/** One signed symbol for keyed means. */

import { Layout, chooseBucket, sign } from "../coins.js";
import { KeyedSymbol, isBoolean, isInteger } from "./symbols.js";

export class SignedSymbol extends KeyedSymbol {
  static TYPE = "signed-symbol";

  /** @param {any} decoded the mechanism of the terms */
  constructor(decoded) {
    super(decoded, { buckets: isInteger, elsewhere: isBoolean }, 2 * Math.max(0, decoded.buckets) + (decoded.elsewhere ? 1 : 0));
    this.layout = Layout.read(decoded.layout);
    this.buckets = decoded.buckets;
    this.elsewhere = decoded.elsewhere;
  }

  /** A person's own symbol, which is secret. @param {number} slot @param {number} key @param {number} level 0 or 1 */
  truth(slot, key, level) {
    if (key < 0) return this.elsewhere ? 2 * this.buckets : -1;
    const hash = this.layout.hash(slot, key);
    return 2 * chooseBucket(hash, this.buckets) + (level > 0 === sign(hash) > 0 ? 1 : 0);
  }
}
