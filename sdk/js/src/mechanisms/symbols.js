// @ts-check
/** What reports of one symbol have in common. */

import { pureCurve, shuffledCurve } from "../privacy/curves.js";
import { RandomizedResponse } from "../response.js";

/** True with the probability of a value in [0, 1]. @param {number} value @param {bigint} word */
export const isBelow = (value, word) => Number(word >> 11n) * 2 ** -53 < value;

/** A value in [0, 1] as a whole number of steps, whose mean it is. @param {number} value @param {number} steps @param {bigint} word */
export function rounded(value, steps, word) {
  const place = steps * value;
  const below = Math.min(Math.floor(place), steps - 1);
  return below + (isBelow(place - below, word) ? 1 : 0);
}

/** Coins and symbol. @param {number} slot @param {number} symbol */
export function report(slot, symbol) {
  const view = new DataView(new ArrayBuffer(6));
  view.setUint32(0, slot, true);
  view.setUint16(4, symbol, true);
  return new Uint8Array(view.buffer);
}

/** @param {any} told @param {string[]} names */
export const hasFields = (told, names) => Object.keys(told).sort().join() === names.join();

/** A report of one symbol about a key, which randomized response protects. */
export class KeyedSymbol {
  /** @param {any} told @param {number} symbols @param {number} levels of a value, at equal distances */
  constructor(told, symbols, levels = 2) {
    this.levels = levels;
    this.localEpsilon = /** @type {number} */ (told.epsilon);
    this.symbols = symbols;
    this.messages = 1;
    this.reportSize = 6;
    this.sampling = 0;
    this.response = new RandomizedResponse(told.epsilon, symbols);
  }

  /** @returns {import("../privacy/curves.js").Curve} */
  alone() {
    return pureCurve(this.localEpsilon);
  }

  /** @param {number} honest @returns {import("../privacy/curves.js").Curve} */
  shuffled(honest) {
    return shuffledCurve(this.localEpsilon, this.symbols, honest);
  }

  /** A person's own symbol, which is secret; -1: there is none. @param {number} _slot @param {number} _key @param {number} _level from 0 @returns {number} */
  truth(_slot, _key, _level) {
    throw new TypeError("a mechanism says what it is");
  }

  /**
   * Randomize what a person contributes.
   * @param {import("./index.js").Contribution} contribution key -1: nothing to tell; value in [0, 1]
   * @param {import("../platform.js").Noise} noise
   */
  randomize({ slot, key, value }, noise) {
    const [first, ...rest] = noise(3);
    const level = rounded(value, this.levels - 1, first);
    return report(slot, this.response.randomize(this.truth(slot, key, level), rest));
  }
}
