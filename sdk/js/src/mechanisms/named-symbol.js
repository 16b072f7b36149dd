// @ts-check
/** One symbol that names a person's key and their value, or a bucket of keys where epsilon is small. */

import { SlotLayout, sign } from "../coins.js";
import { requirePossible } from "../errors.js";
import { KeyedSymbol, isInteger } from "./symbols.js";

/** Least local epsilons of one key at which numbers have so many levels. */
const STEPS = [[0.7, 3], [2.5, 5], [4, 7], [5.5, 9]];
/** Numbers expected closer to a bound have fewer levels: as with so many times the keys. */
const ASIDE = 0.2;
const SYMBOLS_MAX = 32_768;

/** How many levels values have in symbols that name keys at a local epsilon.
 * @param {import("../trust.js").Hits} question @param {number} epsilon */
export function countLevels({ keys, expected }, epsilon) {
  if (expected === null) return 2;
  const margin = Math.log(keys * Math.max(1, ASIDE / Math.min(expected, 1 - expected)));
  return STEPS.reduce((levelCount, [minEpsilon, levels]) => (keys * levels <= SYMBOLS_MAX && minEpsilon + margin <= epsilon ? levels : levelCount), 2);
}

export class NamedSymbol extends KeyedSymbol {
  static TYPE = "named-symbol";

  /** @param {any} decoded the mechanism of the terms */
  constructor(decoded) {
    const { levels = 2 } = decoded;
    super({ ...decoded, levels }, { buckets: isInteger, levels: isInteger }, levels * Math.max(0, decoded.buckets), levels);
    this.layout = SlotLayout.read(decoded.layout);
    this.buckets = decoded.buckets;
    requirePossible(levels >= 2, "levels");
  }

  /** Whether every key has a symbol of its own. */
  get named() {
    return this.buckets === Math.max(1, this.layout.keys);
  }

  /** Whether values have as many levels as a question and the local epsilon say. @param {import("../trust.js").Hits} question */
  fits(question) {
    return this.levels === (this.named ? countLevels(question, this.localEpsilon) : 2);
  }

  /** A person's own symbol, which is secret. @param {number} slot @param {number} key @param {number} level from 0 */
  truth(slot, key, level) {
    if (key < 0) return -1;
    if (this.named) return this.levels * key + level;
    return 2 * this.bucket(slot, key) + (level > 0 === sign(this.layout.hash(slot, key)) > 0 ? 1 : 0);
  }

  /** Hashes put the keys in an order, in which they are dealt to buckets. @param {number} slot @param {number} key */
  bucket(slot, key) {
    if (this.buckets === 1) return 0;
    const place = (/** @type {number} */ index) => (this.layout.hash(slot, index) >> 24n) & 0xffffffffn;
    const ownPlace = place(key);
    let before = 0;
    for (let index = 0; index < this.layout.keys; index++) {
      const other = place(index);
      if (other < ownPlace || (other === ownPlace && index < key)) before += 1;
    }
    return before % this.buckets;
  }
}
