// @ts-check
/** What is read in a spec for deciding alone: also the features of arms, actions, and the domain of points. */

import { requireKnown } from "../errors.js";
import { makeArmFeatures } from "../features.js";
import { Spec } from "../spec.js";

const ACTIONS_MAX = 20_000;
const DIMENSION_MAX = 64;
const SIDES_MAX = 6;
const LAST_LEVEL = 7;
const MIN_WIDTH = 1e-15;

export class DeciderSpec extends Spec {
  /** @param {any} document JSON as decoded @param {Map<string, any>} kinds of policies, by the names of algorithms */
  constructor(document, kinds) {
    super(document, kinds);
    this.domain = document.domain ?? null;
    this.options = this.arms.length ? this.arms : listOptions(document);
  }

  /** @param {any} document */
  readFeatures(document) {
    return this.hasTables ? super.readFeatures(document) : makeArmFeatures(document.context, this.arms);
  }
}

/** What can be chosen where there are no arms: rows of actions, points of a box, or coordinates of points. @param {any} document @returns {string[]} */
function listOptions({ actions, domain }) {
  if (actions?.low) return namePoints([actions.low].flat().map(Number), [actions.high].flat().map(Number));
  const rows = Number(actions?.vectors?.length ?? actions?.count ?? 0);
  const coordinates = Number(domain?.dimension ?? 0);
  requireKnown(rows <= ACTIONS_MAX && coordinates <= DIMENSION_MAX, "actions");
  return actions ? Array.from({ length: rows }, (_, row) => String(row)) : Array.from({ length: coordinates }, (_, i) => `x${i + 1}`);
}

/** Coordinates of all points of a box's finest cover, the last side fastest. @param {number[]} low @param {number[]} high @returns {string[]} */
function namePoints(low, high) {
  requireKnown(low.length === high.length && low.length <= SIDES_MAX, "actions");
  let halvings = LAST_LEVEL;
  while ((2 ** halvings + 1) ** low.length > ACTIONS_MAX) halvings -= 1;
  const sides = low.map((start, side) => {
    const width = high[side] - start;
    requireKnown(width >= MIN_WIDTH && width <= 2 / MIN_WIDTH, "actions");
    return Array.from({ length: 2 ** halvings + 1 }, (_, i) => formatCoordinate(start + width * (i / 2 ** halvings), width / 2 ** halvings, halvings));
  });
  return sides.reduce((names, side) => names.flatMap((name) => side.map((coordinate) => (name ? `${name}, ${coordinate}` : coordinate))), [""]).map((name) => `(${name})`);
}

/** A coordinate as Python writes it. @param {number} value @param {number} step @param {number} halvings */
function formatCoordinate(value, step, halvings) {
  let decimals = halvings;
  for (; step < 1; step *= 10) decimals += 1;
  const text = value.toFixed(decimals).replace(/0+$/, "").replace(/\.$/, "");
  return text === "-0" ? "0" : text;
}
