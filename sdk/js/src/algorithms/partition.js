// @ts-check
/** The partition bandit: bins of contexts, with active arms in each. */

import { readList, readTable } from "../arrays.js";
import { requireKnown } from "../errors.js";
import { CoinPolicy } from "./policy.js";

const DEPTH_MAX = 40;
const NEEDED = ["active", "axes", "bins", "depths", "dimension", "paths", "terms", "version"];

export class PartitionPolicy extends CoinPolicy {
  /** @type {import("../trust.js").Question} */
  static QUESTION = "means";

  /** @param {any} decoded the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(decoded, spec) {
    requireKnown(NEEDED.every((name) => name in decoded));
    super(decoded, spec);
    this.dimension = decoded.dimension;
    this.axes = readList(decoded.axes, "<i8");
    this.depths = readList(decoded.depths, "<i8");
    this.paths = readList(decoded.paths, "<i8");
    this.active = readTable(decoded.active, "|b1").rows;
    this.bins = readList(decoded.bins, "<i8");
    const wholes = decoded.wholes ?? null;
    this.wholes = wholes === null ? this.bins.map((_, entry) => entry) : readList(wholes, "<i8");
    requireKnown(wholes === null || this.freshCoins);
    this.check(decoded, spec);
  }

  /** Wholes, and arms that are active in one of their bins, in order: where the arm is in the key, these are the keys. */
  get cells() {
    const count = (this.wholes.at(-1) ?? -1) + 1;
    const open = Array.from({ length: count }, () => this.active[0].map(() => 0));
    this.bins.forEach((bin, entry) => this.active[bin].forEach((on, arm) => (open[this.wholes[entry]][arm] ||= on)));
    return open.flatMap((row, whole) => row.flatMap((on, arm) => (on ? [[whole, arm]] : [])));
  }

  /** @param {any} decoded @param {import("../spec.js").Spec} spec */
  check(decoded, spec) {
    const { depths, paths, active, bins, layout } = this;
    requireKnown(this.dimension === spec.columns && this.axes.length === DEPTH_MAX && depths.length > 0);
    requireKnown(this.axes.every((axis) => axis >= 0 && axis < this.dimension));
    requireKnown(paths.length === depths.length && active.length === depths.length && this.tiles());
    requireKnown(active.every((row) => row.length === spec.arms.length && row.some((on) => on) && row.every((on, arm) => !on || spec.playable[arm])));
    requireKnown(new Set(bins).size === bins.length && bins.every((bin) => bin >= 0 && bin < depths.length));
    requireKnown(this.wholes.length === bins.length && this.wholes.every((entry, i) => [0, 1].includes(entry - (this.wholes[i - 1] ?? 0))));
    this.checkCoins(decoded, spec, bins.length, this.cells.length);
    requireKnown(bins.every((bin, key) => layout.shares(key).every((share, arm) => share === 0 || active[bin][arm] === 1)));
  }

  /** Least path of 40 bits in a bin. @param {number} bin */
  start(bin) {
    return this.paths[bin] * 2 ** (DEPTH_MAX - this.depths[bin]);
  }

  /** Whether the bins, in order, cover everything once. */
  tiles() {
    let end = 0;
    for (const [bin, depth] of this.depths.entries()) {
      if (depth < 0 || depth > DEPTH_MAX || this.paths[bin] < 0 || this.start(bin) !== end) return false;
      end += 2 ** (DEPTH_MAX - depth);
    }
    return end === 2 ** DEPTH_MAX;
  }

  /** The bin of a context. @param {number[]} columns */
  locate(columns) {
    const deepest = Math.max(...this.depths);
    const halvings = columns.map((_, axis) => this.axes.slice(0, deepest).filter((entry) => entry === axis).length);
    const cells = columns.map((place, axis) => Math.min(Math.floor(place * 2 ** halvings[axis]), 2 ** halvings[axis] - 1));
    let path = 0;
    for (const axis of this.axes.slice(0, deepest)) {
      halvings[axis] -= 1;
      path = 2 * path + (Math.floor(cells[axis] / 2 ** halvings[axis]) % 2);
    }
    const whole = path * 2 ** (DEPTH_MAX - deepest);
    return this.depths.findLastIndex((_, bin) => this.start(bin) <= whole);
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const bin = this.locate(columns);
    const key = this.bins.indexOf(bin);
    return key < 0 ? this.active[bin].indexOf(1) : this.coins(slot, key);
  }

  /** The key that a report is about; -1: there is nothing to tell. @param {number[]} columns @param {number} arm */
  key(columns, arm) {
    const bin = this.locate(columns);
    if (!this.freshCoins) return this.bins.indexOf(bin);
    const whole = this.wholes[this.bins.indexOf(bin)];
    return this.cells.findIndex(([entry, other]) => entry === whole && other === arm);
  }

  /** What a person contributes. @param {number[]} columns @param {number} arm @param {number[]} values as `read` gave them */
  contribute(columns, arm, values) {
    return { key: this.key(columns, arm), value: values[0] };
  }
}
