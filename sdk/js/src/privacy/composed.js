// @ts-check
/** What several messages of a person cost in a shuffled batch, each with coins of its own (docs/accounting.md). */

import { epsilonOf, pureCurve, shuffledCurve } from "./curves.js";
import { deltaOf, lossOf, repeated } from "./loss.js";

/** Points of the grid between 0 and the largest epsilon, as Python's accountant has them. */
const FINE = 600;
/** The same for a first look, which is an upper bound as well. */
export const COARSE = 64;
/** The most honest people that several messages count on, here and in Python: more never harm, and devices compose no crowds. */
const CROWD = 20_000;
const [FARTHEST, LEFT, NEAREST] = [64, 1e-16, 1e-6];
const KEPT = 8;

/** What a page or a server with many devices computes again and again. @type {Map<string, import("./curves.js").Curve>} */
const known = new Map();

/**
 * So many shuffled symbols of a person, one composed with the other.
 * @param {number} local epsilon of a message @param {number} symbols of which there are so many for each own one
 * @param {number} honest @param {number} count messages of a report @param {number} [points] @returns {import("./curves.js").Curve}
 */
export function composedCurve(local, symbols, honest, count, points = FINE) {
  const people = Math.min(honest, CROWD);
  const name = [local, symbols, people, count, points].join();
  const found = known.get(name) ?? composed(shuffledCurve(local, symbols, people), count, points);
  known.delete(name);
  known.set(name, found);
  for (const oldest of known.keys()) if (known.size > KEPT) known.delete(oldest);
  const pure = pureCurve(count * local);
  return (epsilon) => Math.min(pure(epsilon), found(epsilon));
}

/** @param {import("./curves.js").Curve} curve @param {number} count @param {number} points @returns {import("./curves.js").Curve} */
function composed(curve, count, points) {
  const reach = Math.max(NEAREST, Math.min(FARTHEST, epsilonOf(curve, curve(FARTHEST) + LEFT)));
  const step = reach / points;
  const loss = repeated(lossOf(curve, step, points), count);
  return (epsilon) => deltaOf(loss, step, epsilon);
}
