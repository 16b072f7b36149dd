// @ts-check
/** Sums of values at rows and second moments of rows, which a curator makes from records. */

import { concatBytes, encodeLittleEndian } from "../bytes.js";
import { requireKnown, requirePossible } from "../errors.js";
import { hasFraction } from "../msgpack.js";
import { clipNumber, isWhole, isWithin } from "../numbers.js";
import { samplingCost } from "../sampling/normal.js";
import { roundToInteger } from "../sampling/rounding.js";
import { lengthOf } from "../vectors.js";
import { indexSize, isInteger } from "./symbols.js";
import { NoisyVectors } from "./vector-noise.js";

/** Steps of a length of 1 in the sums, and of 1 in a record. */
const [GRID, RECORD_GRID] = [1 << 20, 1 << 14];
const COORDINATES_MAX = 1 << 20;
const ARMS_MAX = 1 << 16;
const SHARE_MAX = 1 / 3;
/** The share of second moments that stands for joint reports. */
const JOINT = 1;
const KEPT_MAX = 1 << 20;
const STEPS_MAX = 1 << 16;
const ROUNDING = 1 + 2 ** -40;
const WHOLE = 1 + 2 ** -10;

/** The vectors that a curator makes of an arm, a row and a value (docs/privacy/curator.md). */
export class RowBall {
  /** @param {any} decoded */
  constructor(decoded) {
    const { arms, dimension, share, ...others } = decoded ?? {};
    const isSized = [arms, dimension].every(isInteger) && !["arms", "dimension"].some((name) => hasFraction(decoded, name));
    requireKnown(isSized && typeof share === "number" && Object.keys(others).length === 0, "ball");
    requirePossible(isWithin(share, 0, SHARE_MAX) || share === JOINT, "share");
    this.arms = /** @type {number} */ (arms);
    this.dimension = /** @type {number} */ (dimension);
    this.share = /** @type {number} */ (share);
    const moments = share ? (dimension * (dimension + 1)) / 2 : 0;
    // A joint report's second moments are in the arm's block, others after all blocks.
    const [block, common] = share === JOINT ? [dimension + moments, 0] : [dimension, moments];
    this.coordinates = arms * block + common;
    this.rounded = 2 * block + common;
    requirePossible(isWhole(arms, 1, ARMS_MAX) && dimension >= 1 && this.coordinates <= COORDINATES_MAX, "dimension");
  }

  /** Largest distance of two people's vectors on the grid, in grid points; rounding included. */
  get diameter() {
    const free = this.share === JOINT ? SHARE_MAX : this.share;
    return (2 * Math.sqrt(1 - free) * GRID + Math.sqrt(this.rounded)) * ROUNDING;
  }
}

export class RowSums extends NoisyVectors {
  static TYPE = "row-sums";

  /** @param {any} decoded @param {Record<string, (one: any) => boolean>} [fields] besides */
  constructor(decoded, fields) {
    const ball = new RowBall(decoded.ball);
    super(decoded, ball, indexSize(ball.arms) + 2 + 2 * ball.dimension, fields);
    this.ball = ball;
  }

  released() {
    return this.curve();
  }

  /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
  randomize({ arm = 0, row = [], value }, noise) {
    requireKnown(row.length === this.ball.dimension && [value, ...row].every(Number.isFinite), "row");
    // Rounded rows are at most 1 long.
    const length = Math.max(1, lengthOf(row) / (1 - Math.sqrt(row.length) / RECORD_GRID));
    const [first, ...words] = noise(1 + row.length);
    const rounded = [roundToInteger(RECORD_GRID * clipNumber(value, -1, 1), first), ...row.map((entry, i) => roundToInteger(RECORD_GRID * (entry / length), words[i]))];
    return concatBytes(encodeLittleEndian(indexSize(this.ball.arms), arm), ...rounded.map((entry) => encodeLittleEndian(2, entry)));
  }
}

/** Sums since the first round, whose noise does not add up (docs/privacy/continual-release.md). */
export class RunningVectors extends RowSums {
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
