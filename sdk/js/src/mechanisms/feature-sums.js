// @ts-check
/** Sums of values and of people by the answers to several questions at once, which a curator makes from records. */

import { concatBytes, encodeLittleEndian } from "../bytes.js";
import { requireKnown, requirePossible } from "../errors.js";
import { clipNumber, isNumber, isPositive, isWhole } from "../numbers.js";
import { normalCurve } from "../privacy/curves.js";
import { isDrawable, samplingCost } from "../sampling/normal.js";
import { roundToInteger } from "../sampling/rounding.js";
import { Mechanism, indexSize, isBoolean } from "./symbols.js";

/** Steps of a value of 1 in a record. */
const GRID = 1 << 12;
const SCALE_MAX = 1 << 16;
const COORDINATES_MAX = 1 << 20;
const ROUNDING = 1 + 2 ** -40;

/** @param {any} list @param {number} least @param {number} most */
const isWholes = (list, least, most) => Array.isArray(list) && list.every((entry) => isWhole(entry, least, most));
const isScales = (/** @type {any} */ list) => isWholes(list, 0, SCALE_MAX);

export class FeatureSums extends Mechanism {
  static TYPE = "feature-sums";

  /** @param {any} decoded */
  constructor(decoded) {
    super(decoded, {
      arms: (entry) => isWhole(entry, 1, COORDINATES_MAX), sizes: (entry) => isWholes(entry, 1, COORDINATES_MAX), value_scales: isScales, count_scales: isScales,
      counts_arms: isBoolean, below: isNumber, standard_deviation: isNumber,
    });
    const { arms, sizes, value_scales: values, count_scales: counts, counts_arms: countsArms, below, standard_deviation: deviation } = decoded;
    const coordinates = sizes.reduce((/** @type {number} */ sum, /** @type {number} */ size) => sum + size, 0) * (arms + (countsArms ? arms : 1));
    const isPossible = values.length === sizes.length && counts.length === sizes.length && values.some((/** @type {number} */ scale) => scale > 0);
    requirePossible(isPossible && coordinates <= COORDINATES_MAX, "sizes");
    requirePossible(isPositive(below, 1), "below");
    requirePossible(deviation === 0 || isDrawable(deviation), "standard_deviation");
    this.arms = /** @type {number} */ (arms);
    this.sizes = /** @type {number[]} */ (sizes);
    this.scales = /** @type {[number, number][]} */ (values.map((/** @type {number} */ value, /** @type {number} */ i) => [value, counts[i]]));
    this.countsArms = /** @type {boolean} */ (countsArms);
    this.below = /** @type {number} */ (below);
    this.deviation = /** @type {number} */ (deviation);
    this.sampling = deviation ? samplingCost(coordinates) : 0;
    this.answerSize = indexSize(Math.max(...sizes));
    this.reportSize = indexSize(arms) + 2 + sizes.length * this.answerSize;
  }

  /** Largest distance of what two people add to the sums (docs/privacy/curator.md). */
  get sensitivity() {
    const b = Math.ceil(this.below * GRID) / GRID;
    let [apart, opposite] = [0, 0];
    for (const [value, count] of this.scales) {
      apart += 2 * (value * value + count * count);
      opposite += value * value * (1 + b * b) + 2 * Math.max(count * count, b * value * value);
    }
    return GRID * Math.sqrt(Math.max(apart, opposite)) * ROUNDING;
  }

  /** What a release reveals; null: the record. @returns {import("../privacy/curves.js").Curve | null} */
  released() {
    return this.deviation ? normalCurve(this.deviation, this.sensitivity) : null;
  }

  /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
  randomize({ arm = 0, answers = [], value }, noise) {
    requireKnown(Number.isFinite(value), "value");
    const rounded = roundToInteger(GRID * clipNumber(value, -this.below, 1), noise(1)[0]);
    return concatBytes(
      encodeLittleEndian(indexSize(this.arms), arm), encodeLittleEndian(2, rounded), ...answers.map((answer) => encodeLittleEndian(this.answerSize, answer)),
    );
  }
}
