// @ts-check
/** High-dimensional bandits, for deciding alone: coefficients of few of an arm's features. */

import { list } from "../arrays.js";
import { malformed } from "../errors.js";
import { dot } from "../vectors.js";
import { classOf } from "../algorithms/linear/reports.js";

const BALL = 1 + 1e-9;

export class SparseDecider {
  /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(told, spec) {
    this.version = told.version;
    this.cohort = "";
    this.places = list(told.places, "<i8");
    this.coefficients = list(told.coefficients, "<f8");
    this.intercepts = list(told.intercepts, "<f8");
    this.playable = list(told.playable, "|b1");
    this.explores = told.explores;
    this.seed = BigInt(told.seed);
    this.width = spec.columns / spec.arms.length;
    this.check(spec);
  }

  /** @param {import("../spec.js").Spec} spec */
  check(spec) {
    const { places, coefficients, intercepts, playable, width } = this;
    const inOrder = places.every((one, i) => one >= 0 && one < width && (i === 0 || places[i - 1] < one));
    const shaped = coefficients.length === places.length && places.length <= 2 * Math.min(spec.table.sparsity, width);
    const plays = playable.length === spec.arms.length && playable.every((on, arm) => (on === 1) === spec.playable[arm]);
    const most = Math.max(...intercepts.map(Math.abs)) + coefficients.reduce((sum, one) => sum + Math.abs(one), 0);
    const ranged = typeof this.explores === "boolean" && this.seed >= 0n && this.seed < 1n << 63n;
    const good = inOrder && shaped && plays && intercepts.length === spec.arms.length && most <= BALL && ranged;
    if (!good) throw malformed("not a policy of this algorithm");
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const played = this.playable.flatMap((on, arm) => (on ? [arm] : []));
    if (this.explores) return played[classOf(slot, this.seed, played.length)];
    const all = this.coefficients.reduce((sum, one) => sum + one, 0);
    const scores = this.intercepts.map((intercept, arm) => {
      const own = this.places.map((place) => columns[arm * this.width + place]);
      return this.playable[arm] ? 2 * (intercept + dot(own, this.coefficients)) - all : -Infinity;
    });
    return scores.indexOf(Math.max(...scores));
  }
}
