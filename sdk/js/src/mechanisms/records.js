// @ts-check
/** Records that a curator sees: a key and a value on a grid. The noise of what is released is the curator's. */

import { concatBytes, encodeLittleEndian } from "../bytes.js";
import { Layout, SlotLayout } from "../coins.js";
import { requirePossible } from "../errors.js";
import { isWithin } from "../numbers.js";
import { normalCurve, pureCurve } from "../privacy/curves.js";
import { samplingCost } from "../sampling/normal.js";
import { Mechanism, isThere, roundRandomly } from "./symbols.js";

/** Grid points of a value in [0, 1]. */
const UNIT = 65_535;
const NO_KEY = 0xffff_ffff;
const NOISE_MAX = 1e6;
const RELEASED_MAX = 1 << 20;

/** @param {any} scale of noise, in values */
const isNoise = (scale) => isWithin(scale, 0, NOISE_MAX) && scale < NOISE_MAX;

/** A curve of discrete Laplace noise with the next whole scale. @param {number} sensitivity @param {number} scale @param {number} unit of the grid */
const laplaceCurve = (sensitivity, scale, unit) => pureCurve((sensitivity * unit) / Math.ceil(scale * unit));

/** A key, and a value that a word rounds. @param {number} key @param {number} value @param {bigint} word */
const record = (key, value, word) => concatBytes(encodeLittleEndian(4, key < 0 ? NO_KEY : key), half(key, value, word));

/** @param {number} key @param {number} value @param {bigint} word */
const half = (key, value, word) => encodeLittleEndian(2, key < 0 ? 0 : roundRandomly(value, UNIT, word));

/** Sums of scores and people per cell. */
export class CentralSums extends Mechanism {
  static TYPE = "central-sums";

  /** @param {any} decoded */
  constructor(decoded) {
    super(decoded, { layout: isThere, scale: isNoise, standard_deviation: isNoise }, 10);
    requirePossible(!decoded.standard_deviation || !decoded.scale, "standard_deviation");
    this.layout = Layout.read(decoded.layout);
    requirePossible(2 * this.layout.keys * this.layout.groups <= RELEASED_MAX, "layout");
    this.deviation = /** @type {number} */ (decoded.standard_deviation);
    this.scale = /** @type {number} */ (decoded.scale);
    this.sampling = this.deviation ? samplingCost(RELEASED_MAX) : 0;
  }

  /** What a release reveals; null: the record. @returns {import("../privacy/curves.js").Curve | null} */
  released() {
    if (this.scale) return laplaceCurve(4, this.scale, UNIT);
    return this.deviation ? normalCurve(this.deviation, 2) : null;
  }

  /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
  randomize({ slot, key, value }, noise) {
    return concatBytes(encodeLittleEndian(4, slot), record(key, value, noise(1)[0]));
  }
}

/** Sums of values and of their rests per key. */
export class CellPairs extends Mechanism {
  static TYPE = "cell-pairs";
  /** What the parts of a value add up to. */
  unit = UNIT;

  /** @param {any} decoded @param {number} [size] of a record */
  constructor(decoded, size) {
    super(decoded, { layout: isThere, scale: isNoise }, size);
    this.layout = SlotLayout.read(decoded.layout);
    requirePossible(this.layout.groups === 1, "scale");
    this.scale = /** @type {number} */ (decoded.scale);
  }

  /** Whether it tells what is asked: the variance of values just where that is wanted. @param {import("../trust.js").Hits} question */
  fits(question) {
    return question.expected === null;
  }

  /** What a release reveals; null: the record. @returns {import("../privacy/curves.js").Curve | null} */
  released() {
    return this.scale ? laplaceCurve(2, this.scale, this.unit) : null;
  }

  /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
  randomize({ key, value }, noise) {
    return record(key, value, noise(1)[0]);
  }
}

/** Sums of (1 - r)^2, 2 r (1 - r) and r^2 of values r per key, on the grid of squares; records are those of pairs. */
export class CellTriples extends CellPairs {
  static TYPE = "cell-triples";
  unit = UNIT ** 2;

  /** @param {import("../trust.js").Hits} question */
  fits(question) {
    return question.expected !== null && !question.beside;
  }
}

/** Sums of products of the parts of values and of a number beside each; noise is that of triples, records have the number, too. */
export class CellProducts extends CellTriples {
  static TYPE = "cell-products";

  /** @param {any} decoded */
  constructor(decoded) {
    super(decoded, 8);
  }

  /** @param {import("../trust.js").Hits} question */
  fits(question) {
    return question.expected !== null && question.beside;
  }

  /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
  randomize({ key, value, number = 0 }, noise) {
    const [first, second] = noise(2);
    return concatBytes(record(key, value, first), half(key, number, second));
  }
}
