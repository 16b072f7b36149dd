// @ts-check
/** One symbol for rare rewards: that there was one in the person's key, or that there was none. */

import { Layout, chooseClass } from "../coins.js";
import { KeyedSymbol } from "./symbols.js";

/** The coins have one of so many reports name the person's key in place of its events. */
const NAMING = 10;

export class EventSymbol extends KeyedSymbol {
  static TYPE = "event-symbol";

  /** @param {any} decoded the mechanism of the terms */
  constructor(decoded) {
    const layout = Layout.read(decoded.layout);
    super(decoded, {}, layout.keys + 1);
    this.layout = layout;
  }

  /** A person's own symbol, which is secret. @param {number} slot @param {number} key @param {number} bit 1 or -1 */
  truth(slot, key, bit) {
    return key >= 0 && (bit > 0 || chooseClass(slot, this.layout.seed, NAMING) === 0) ? key + 1 : 0;
  }
}
