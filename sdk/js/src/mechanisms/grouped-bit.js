// @ts-check
/** One bit a person, in groups that public coins choose and everybody may see. */

import { Layout, UNIT } from "../coins.js";
import { refused } from "../errors.js";
import { groupedCurve } from "../privacy/curves.js";
import { RandomizedResponse } from "../response.js";
import { isNumber } from "../numbers.js";
import { isBelow } from "../sampling/rounding.js";
import { Mechanism, isThere, encodeReport } from "./symbols.js";

const SYMBOLS = 2;
/** Binary digits of the shares that a promise counts on. */
const DIGITS = 6;

export class GroupedBit extends Mechanism {
  static TYPE = "grouped-bit";

  /** @param {any} decoded the mechanism of the terms */
  constructor(decoded) {
    super(decoded, { epsilons: (all) => Array.isArray(all) && all.every(isNumber), layout: isThere });
    this.layout = Layout.read(decoded.layout);
    this.epsilons = /** @type {number[]} */ (decoded.epsilons);
    const epsilon = this.layout.keys === 1 && this.layout.groups === this.epsilons.length;
    if (!epsilon) throw refused("must be one for each group of one key", "epsilons");
    this.localEpsilon = Math.max(...this.epsilons);
    this.responses = this.epsilons.map((epsilon) => new RandomizedResponse(epsilon, SYMBOLS));
  }

  /** What a batch costs with who is in which group: the worst of the groups. @param {number} honest @returns {import("../privacy/curves.js").Curve} */
  shuffled(honest) {
    const shares = this.layout.shares(0).map(roundGroupShare);
    /** @type {Map<string, import("../privacy/curves.js").Curve>} */
    const curves = new Map();
    shares.forEach((share, group) => {
      const local = this.epsilons[group];
      if (share > 0) curves.set(`${local} ${share}`, groupedCurve(local, honest, share));
    });
    return (epsilon) => Math.max(...[...curves.values()].map((curve) => curve(epsilon)));
  }

  /**
   * Randomize what a person contributes.
   * @param {import("./index.js").Contribution} contribution key -1: nothing to tell; value in [0, 1]
   * @param {import("../platform.js").Noise} noise
   */
  randomize({ slot, key, value }, noise) {
    const [first, ...rest] = noise(3);
    const truth = key < 0 ? -1 : isBelow(value, first) ? 1 : 0;
    const group = this.layout.group(this.layout.hash(slot, 0), 0);
    return encodeReport(slot, this.responses[group].randomize(truth, rest));
  }
}

/** The share of a group that a promise counts on, of so many parts of 65,536: rounded down to a few binary digits. @param {number} part */
function roundGroupShare(part) {
  const dropped = Math.max(0, 32 - Math.clz32(part) - DIGITS);
  return ((part >> dropped) << dropped) / UNIT;
}
