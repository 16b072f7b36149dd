// @ts-check
/** Sums with normal noise, and vectors to which every device adds it. */

import { concatBytes, encodeLittleEndian } from "../bytes.js";
import { requirePossible } from "../errors.js";
import { normalCurve } from "../privacy/curves.js";
import { REACH, RoundedNormal, samplingCost } from "../sampling/normal.js";
import { Ball } from "../vectors.js";
import { isNumber } from "../numbers.js";
import { Mechanism, isThere } from "./symbols.js";

const MOST = 2 ** 31 - 1;

/** @param {number[]} values */
const encodeWords = (values) => concatBytes(...values.map((value) => encodeLittleEndian(4, value)));

export class NoisyVectors extends Mechanism {
  /** @param {any} decoded @param {{coordinates: number, diameter: number}} kind of the vectors @param {number} size of a report
   * @param {Record<string, (one: any) => boolean>} [fields] besides */
  constructor(decoded, kind, size, fields) {
    super(decoded, { ball: isThere, standard_deviation: isNumber, ...fields }, size);
    this.vectors = kind;
    this.deviation = /** @type {number} */ (decoded.standard_deviation);
    requirePossible(this.deviation >= 0 && this.deviation < Infinity, "standard_deviation");
    this.sampling = this.deviation ? samplingCost(kind.coordinates) : 0;
  }

  /** How far two people may be from each other in what is seen. */
  get shift() {
    return this.vectors.diameter;
  }

  /** @returns {import("../privacy/curves.js").Curve | null} */
  curve() {
    return this.deviation ? normalCurve(this.deviation, this.shift) : null;
  }
}

export class GaussianVectors extends NoisyVectors {
  static TYPE = "gaussian-vectors";

  /** @param {any} decoded */
  constructor(decoded) {
    const ball = new Ball(decoded.ball);
    super(decoded, ball, 4 * ball.coordinates);
    this.ball = ball;
    requirePossible(this.ball.diameter + 1.01 * REACH * this.deviation < MOST, "privacy.epsilon");
    this.normal = new RoundedNormal(this.deviation);
  }

  localCurve() {
    return this.curve();
  }

  /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
  randomize({ vector }, noise) {
    const exact = this.ball.onGrid(vector, noise);
    return encodeWords(exact.map((entry) => entry + this.normal.draw(noise)));
  }
}
