// @ts-check
/** Vectors with normal noise: from every device, or drawn once by a curator at the release. */

import { concatBytes, encodeLittleEndian } from "../bytes.js";
import { requirePossible } from "../errors.js";
import { normalCurve } from "../privacy/curves.js";
import { REACH, RoundedNormal, samplingCost } from "../sampling/normal.js";
import { Ball } from "../vectors.js";
import { isNumber } from "../numbers.js";
import { Mechanism, isThere, isInteger } from "./symbols.js";

const MOST = 2 ** 31 - 1;
const KEPT_MAX = 1 << 20;
const STEPS_MAX = 1 << 16;
const WHOLE = 1 + 2 ** -10;

/** @param {number[]} values */
const encodeWords = (values) => concatBytes(...values.map((value) => encodeLittleEndian(4, value)));

class NoisyVectors extends Mechanism {
  /** @param {any} decoded @param {Record<string, (one: any) => boolean>} [fields] besides */
  constructor(decoded, fields) {
    const ball = new Ball(decoded.ball);
    super(decoded, { ball: isThere, standard_deviation: isNumber, ...fields }, 4 * ball.coordinates);
    this.ball = ball;
    this.deviation = /** @type {number} */ (decoded.standard_deviation);
    requirePossible(this.deviation >= 0 && this.deviation < Infinity, "standard_deviation");
    this.sampling = this.deviation ? samplingCost(ball.coordinates) : 0;
  }

  /** How far two people may be from each other in what is seen. */
  get shift() {
    return this.ball.diameter;
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
    super(decoded);
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

export class CentralVectors extends NoisyVectors {
  static TYPE = "central-vectors";

  released() {
    return this.curve();
  }

  /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
  randomize({ vector }, noise) {
    return encodeWords(this.ball.onGrid(vector, noise));
  }
}

/** Sums since the first round, whose noise does not add up (docs/privacy/continual-release.md). */
export class RunningVectors extends CentralVectors {
  static TYPE = "running-vectors";

  /** @param {any} decoded */
  constructor(decoded) {
    super(decoded, { kind: (entry) => entry === "root" || entry === "tree", steps: isInteger });
    const { kind, steps } = decoded;
    requirePossible(steps >= 1 && steps <= Math.min(STEPS_MAX, Math.floor(KEPT_MAX / this.ball.coordinates)), "steps");
    this.kind = kind;
    this.steps = /** @type {number} */ (steps);
    this.sampling = this.deviation ? samplingCost(this.ball.coordinates * this.steps) : 0;
    this.continues = true;
  }

  get shift() {
    const { diameter, coordinates } = this.ball;
    if (this.kind === "tree") return diameter * Math.sqrt(this.steps.toString(2).length);
    let [squares, share] = [diameter * diameter, 1];
    for (let k = 1; k < this.steps; k++) {
      share *= (2 * k - 1) / (2 * k);
      squares += (diameter * share + WHOLE * Math.sqrt(coordinates)) ** 2;
    }
    return Math.sqrt(squares);
  }
}
