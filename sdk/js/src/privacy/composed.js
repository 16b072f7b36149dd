// @ts-check
/** What several messages of a person cost in a shuffled batch, each with coins of its own (docs/accounting.md). */

import { findEpsilon, pureCurve, shuffledCurve } from "./curves.js";
import { computeDelta, discretizeLoss, repeatLoss } from "./loss.js";

/** Points of the grid between 0 and the largest epsilon, as Python's accountant has them. */
const FINE = 150;
/** The same for a first look, which is an upper bound as well. */
export const COARSE = 64;
/** The most honest people that several messages count on, here and in Python: more never harm, and devices compose no crowds. */
const CROWD = 20_000;
const [FARTHEST, LEFT, NEAREST] = [64, 1e-16, 1e-6];
const KEPT = 8;

/** What a page or a server with many devices computes again and again. @type {Map<string, import("./curves.js").Curve>} */
const cachedCurves = new Map();

/**
 * So many shuffled symbols of a person, one composed with the other.
 * @param {number} local epsilon of a message @param {number} symbols of which there are so many for each own one
 * @param {number} honest @param {number} count messages of a report @param {number} [points] @returns {import("./curves.js").Curve}
 */
export function composedCurve(local, symbols, honest, count, points = FINE) {
  const people = Math.min(honest, CROWD);
  const name = [local, symbols, people, count, points].join();
  const curve = cachedCurves.get(name) ?? composeCurve(shuffledCurve(local, symbols, people), count, points);
  cachedCurves.delete(name);
  cachedCurves.set(name, curve);
  for (const oldest of cachedCurves.keys()) if (cachedCurves.size > KEPT) cachedCurves.delete(oldest);
  const pure = pureCurve(count * local);
  return (epsilon) => Math.min(pure(epsilon), curve(epsilon));
}

/** @param {import("./curves.js").Curve} curve @param {number} count @param {number} points @returns {import("./curves.js").Curve} */
function composeCurve(curve, count, points) {
  const reach = Math.max(NEAREST, Math.min(FARTHEST, findEpsilon(curve, curve(FARTHEST) + LEFT)));
  const step = reach / points;
  const loss = repeatLoss(discretizeLoss(curve, step, points), count);
  return (epsilon) => computeDelta(loss, step, epsilon);
}
