// @ts-check
/** High-dimensional bandits, for deciding alone: coefficients of few of an arm's features. */

import { Policy, readPlayable } from "../algorithms/policy.js";
import { readList, findTrue } from "../arrays.js";
import { chooseClass, readSeed } from "../coins.js";
import { requireKnown } from "../errors.js";
import { dot } from "../vectors.js";

const BALL = 1 + 1e-9;

export class SparseDecider extends Policy {
  /** @param {any} decoded the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(decoded, spec) {
    super(decoded, spec);
    this.places = readList(decoded.places, "<i8");
    this.coefficients = readList(decoded.coefficients, "<f8");
    this.intercepts = readList(decoded.intercepts, "<f8");
    this.playable = readPlayable(decoded, spec);
    this.explores = decoded.explores;
    this.seed = readSeed(decoded.seed);
    this.width = spec.columns / spec.arms.length;
    this.check(spec);
  }

  /** @param {import("../spec.js").Spec} spec */
  check(spec) {
    const { places, coefficients, intercepts, width } = this;
    const inOrder = places.every((coefficient, i) => coefficient >= 0 && coefficient < width && (i === 0 || places[i - 1] < coefficient));
    const shaped = coefficients.length === places.length && places.length <= 2 * Math.min(spec.table.sparsity, width);
    const largest = Math.max(...intercepts.map(Math.abs)) + coefficients.reduce((sum, coefficient) => sum + Math.abs(coefficient), 0);
    requireKnown(inOrder && shaped && intercepts.length === spec.arms.length && largest <= BALL && typeof this.explores === "boolean");
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const played = findTrue(this.playable);
    if (this.explores) return played[chooseClass(slot, this.seed, played.length)];
    const scores = this.intercepts.map((intercept, arm) => {
      const coordinate = this.places.map((place) => 2 * columns[arm * this.width + place] - 1);
      return this.playable[arm] ? intercept + dot(coordinate, this.coefficients) : -Infinity;
    });
    return scores.indexOf(Math.max(...scores));
  }
}
