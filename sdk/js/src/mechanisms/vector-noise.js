// @ts-check
/** Vectors with normal noise: from every device, or drawn once by a curator at the release. */

import { malformed, refused } from "../errors.js";
import { normalCurve } from "../privacy/curves.js";
import { REACH, RoundedNormal, samplingCost } from "../sampling/normal.js";
import { Ball } from "../vectors.js";
import { hasFields } from "./symbols.js";

const MOST = 2 ** 31 - 1;
const KEPT_MAX = 1 << 20;
const STEPS_MAX = 1 << 16;
const WHOLE = 1 + 2 ** -10;

/** @param {number[]} values */
function whole(values) {
  const view = new DataView(new ArrayBuffer(4 * values.length));
  values.forEach((one, i) => view.setInt32(4 * i, one, true));
  return new Uint8Array(view.buffer);
}

class NoisyVectors {
  /** @param {any} told @param {string[]} fields */
  constructor(told, fields) {
    const deviation = told.standard_deviation;
    if (!hasFields(told, fields) || typeof deviation !== "number") throw malformed("not vectors with noise");
    if (!(deviation >= 0 && deviation < Infinity)) throw refused("there is no such randomizer", "standard_deviation");
    this.ball = new Ball(told.ball);
    this.deviation = deviation;
    this.localEpsilon = Infinity;
    this.classes = 1;
    this.messages = 1;
    this.reportSize = 4 * this.ball.coordinates;
    this.sampling = deviation ? samplingCost(this.ball.coordinates) : 0;
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

  /** @param {any} told */
  constructor(told) {
    super(told, ["ball", "standard_deviation", "type"]);
    if (!(this.ball.diameter + 1.01 * REACH * this.deviation < MOST)) throw refused("there is no such randomizer", "privacy.epsilon");
    this.normal = new RoundedNormal(this.deviation);
  }

  alone() {
    return this.curve();
  }

  /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
  randomize({ vector }, noise) {
    const exact = this.ball.onGrid(vector, noise);
    return whole(exact.map((one) => one + this.normal.draw(noise)));
  }
}

export class CentralVectors extends NoisyVectors {
  static TYPE = "central-vectors";

  /** @param {any} told @param {string[]} fields */
  constructor(told, fields = ["ball", "standard_deviation", "type"]) {
    super(told, fields);
  }

  released() {
    return this.curve();
  }

  /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
  randomize({ vector }, noise) {
    return whole(this.ball.onGrid(vector, noise));
  }
}

/** Sums since the first round, whose noise does not add up (docs/privacy/continual-release.md). */
export class RunningVectors extends CentralVectors {
  static TYPE = "running-vectors";

  /** @param {any} told */
  constructor(told) {
    super(told, ["ball", "kind", "standard_deviation", "steps", "type"]);
    const { kind, steps } = told;
    const most = Math.min(STEPS_MAX, Math.floor(KEPT_MAX / this.ball.coordinates));
    if ((kind !== "root" && kind !== "tree") || !Number.isSafeInteger(steps) || !(steps >= 1 && steps <= most)) {
      throw refused("there is no such randomizer", "steps");
    }
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
