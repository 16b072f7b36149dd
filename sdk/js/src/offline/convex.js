// @ts-check
/** Bandits on a convex set, for deciding alone: points around a public centre. */

import { readList, readTable } from "../arrays.js";
import { Layout, UNIT } from "../coins.js";
import { requireKnown } from "../errors.js";
import { roundToEven } from "../numerics.js";
import { lengthOf } from "../vectors.js";

const ROUNDING = 1e-9;
/** The shortest way from the centre to a point, in radii. */
const SHORTEST = 1e-9;
/** The bit of a hash that chooses a side. */
const SIDE = 20n;

export class ConvexDecider {
  /** @param {any} decoded the policy as decoded @param {import("./spec.js").DeciderSpec} spec */
  constructor(decoded, spec) {
    this.version = decoded.version;
    this.cohort = "";
    this.domain = /** @type {{shape: "ball" | "box", dimension: number, radius: number}} */ (spec.domain);
    this.centre = readList(decoded.centre, "<f8");
    this.axes = readTable(decoded.axes, "<f8").rows;
    this.points = decoded.points;
    // Where others may see who got which, both sides of a direction are groups of their own.
    this.sides = spec.groupsArms && decoded.terms.batch_size > 0 ? 2 : 1;
    const count = this.sides * this.axes.length;
    const edges = Array.from({ length: Math.max(0, count - 1) }, (_, i) => roundToEven((UNIT * (i + 1)) / count));
    this.layout = new Layout(BigInt(decoded.seed), [edges], count);
    this.check(spec, decoded.terms.batch_size);
  }

  /** @param {import("./spec.js").DeciderSpec} spec @param {number} batch */
  check(spec, batch) {
    const { centre, axes, layout, domain } = this;
    const shaped = [centre, axes, ...axes].every((coordinate) => coordinate.length === domain.dimension);
    const ranged = layout.seed >= 0n && layout.seed < 1n << 63n && this.points === (spec.table.feedback === "two-point" ? 2 : 1);
    const away = (/** @type {number[]} */ way) => {
      const length = way.reduce((sum, coordinate) => sum + Math.abs(coordinate), 0);
      return batch ? length >= SHORTEST * domain.radius : length === 0;
    };
    const inside = shaped && [1, -1].every((sign) => axes.every((way) => this.holds(this.movedPoint(way, sign))));
    requireKnown(ranged && inside && this.holds(centre) && axes.every(away));
  }

  /** Whether a point is of the set. @param {number[]} point */
  holds(point) {
    const { shape, radius } = this.domain;
    const size = shape === "ball" ? lengthOf(point) : Math.max(...point.map(Math.abs));
    return size <= radius * (1 + ROUNDING);
  }

  /** @param {number[]} way @param {number} sign */
  movedPoint(way, sign) {
    return this.centre.map((coordinate, i) => coordinate + sign * way[i]);
  }

  /** A point, or two by their names. @param {number[]} _columns @param {number} slot @returns {number[] | Record<string, number[]>} */
  show(_columns, slot) {
    const hash = this.layout.hash(slot, 0);
    const group = this.layout.group(hash, 0);
    const axis = this.sides === 2 ? group >> 1 : group;
    const sign = (this.sides === 2 ? group & 1 : (hash >> SIDE) & 1n) ? 1 : -1;
    const first = this.movedPoint(this.axes[axis], sign);
    return this.points === 1 ? first : { first, second: this.movedPoint(this.axes[axis], -sign) };
  }
}
