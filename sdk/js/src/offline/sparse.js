// @ts-check
/** High-dimensional bandits, for deciding alone: coefficients of few of an arm's features. */

import { Policy, playableOf } from "../algorithms/policy.js";
import { list, places } from "../arrays.js";
import { classOf, seedOf } from "../coins.js";
import { sound } from "../errors.js";
import { dot } from "../vectors.js";

const BALL = 1 + 1e-9;

export class SparseDecider extends Policy {
  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    super(told, spec);
    this.places = list(told.places, "<i8");
    this.coefficients = list(told.coefficients, "<f8");
    this.intercepts = list(told.intercepts, "<f8");
    this.playable = playableOf(told, spec);
    this.explores = told.explores;
    this.seed = seedOf(told.seed);
    this.width = spec.columns / spec.arms.length;
    this.check(spec);
  }

  /** @param {import("../spec.js").Spec} spec */
  check(spec) {
    const { places, coefficients, intercepts, width } = this;
    const inOrder = places.every((one, i) => one >= 0 && one < width && (i === 0 || places[i - 1] < one));
    const shaped = coefficients.length === places.length && places.length <= 2 * Math.min(spec.table.sparsity, width);
    const most = Math.max(...intercepts.map(Math.abs)) + coefficients.reduce((sum, one) => sum + Math.abs(one), 0);
    sound(inOrder && shaped && intercepts.length === spec.arms.length && most <= BALL && typeof this.explores === "boolean");
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const played = places(this.playable);
    if (this.explores) return played[classOf(slot, this.seed, played.length)];
    const scores = this.intercepts.map((intercept, arm) => {
      const own = this.places.map((place) => 2 * columns[arm * this.width + place] - 1);
      return this.playable[arm] ? intercept + dot(own, this.coefficients) : -Infinity;
    });
    return scores.indexOf(Math.max(...scores));
  }
}
