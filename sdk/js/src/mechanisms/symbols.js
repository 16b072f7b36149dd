// @ts-check
/** What mechanisms have in common, and reports of one symbol. */

import { concatBytes, encodeLittleEndian } from "../bytes.js";
import { requireKnown } from "../errors.js";
import { hasFraction } from "../msgpack.js";
import { isNumber, isWhole } from "../numbers.js";
import { pureCurve, shuffledCurve } from "../privacy/curves.js";
import { RandomizedResponse } from "../response.js";
import { roundToInteger } from "../sampling/rounding.js";

/** A value in [0, 1] as a whole number of steps, whose mean it is. @param {number} value @param {number} steps @param {bigint} word */
export const roundRandomly = (value, steps, word) => Math.min(roundToInteger(steps * value, word), steps);

/** Coins and symbol. @param {number} slot @param {number} symbol */
export const encodeReport = (slot, symbol) => concatBytes(encodeLittleEndian(4, slot), encodeLittleEndian(2, symbol));

/** Bytes of an index. @param {number} count of indices */
export const indexSize = (count) => (count <= 256 ? 1 : 2);
export const isInteger = (/** @type {any} */ value) => isWhole(value);
export const isBoolean = (/** @type {any} */ value) => typeof value === "boolean";
export const isThere = (/** @type {any} */ value) => value !== undefined;

/** What randomizes a person's report. */
export class Mechanism {
  /** @type {string} */
  static TYPE;

  /** @param {any} decoded the mechanism of the terms @param {Record<string, (one: any) => boolean>} fields which it has, and no others
   * @param {number} size of a report @param {number} epsilon of a report alone */
  constructor(decoded, fields, size = 6, epsilon = Infinity) {
    const { type, ...others } = decoded;
    const names = Object.keys(fields);
    // A number that is written as a fraction, as 256.0, has to be one that may have a part of 1.
    const canHaveFraction = (/** @type {string} */ name) => fields[name](Array.isArray(others[name]) ? [0.5] : 0.5);
    const isFit = (/** @type {string} */ name) => fields[name](others[name]) && (!hasFraction(decoded, name) || canHaveFraction(name));
    requireKnown(Object.keys(others).length === names.length && names.every(isFit), type);
    this.localEpsilon = epsilon;
    this.messages = 1;
    this.reportSize = size;
    /** What sampling adds to delta. */
    this.sampling = 0;
  }

  /** What a report reveals; null: the record. @returns {import("../privacy/curves.js").Curve | null} */
  localCurve() {
    return pureCurve(this.localEpsilon);
  }
}

/** A report of one symbol about a key, which randomized response protects. */
export class KeyedSymbol extends Mechanism {
  /** @param {any} decoded @param {Record<string, (one: any) => boolean>} fields @param {number} symbols @param {number} levels of a value, at equal distances */
  constructor(decoded, fields, symbols, levels = 2) {
    super(decoded, { epsilon: isNumber, layout: isThere, ...fields }, 6, decoded.epsilon);
    this.levels = levels;
    this.symbols = symbols;
    this.response = new RandomizedResponse(decoded.epsilon, symbols);
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
    const level = roundRandomly(value, this.levels - 1, first);
    return encodeReport(slot, this.response.randomize(this.truth(slot, key, level), rest));
  }
}
