// What draws each kind of what is published: parts of an answer, and what a policy shows. The kind alone decides.

import { binMeans, bins } from "./bins.mjs";
import { drawUnknown } from "./documents.mjs";
import { driftTest, features, figures, guardrail, halfLives, intervals, losses, overTime, rules, tabled } from "./parts.mjs";
import { drawPlays } from "./plays.mjs";
import { drawShapes } from "./shapes.mjs";
import { coefficients, groups, point } from "./views.mjs";

/** The function that draws each kind: it is given what is published, and where and how it is drawn (`About`). */
export const RENDERERS = {
  bins, groups, coefficients, plays: drawPlays, point,
  rules, "bin means": binMeans, "over time": overTime, guardrail, intervals, losses, figures, table: tabled,
  "drift test": driftTest, features, "half-lives": halfLives, shapes: drawShapes,
};

/**
 * Where and how something is drawn.
 *
 * @typedef {object} About
 * @property {string} id that ids of elements begin with
 * @property {number} width in pixels
 * @property {string[]} options of the experiment, in the spec's order
 * @property {object|undefined} features of the spec, by name
 * @property {object} answer what the learner has found
 * @property {object|undefined} map that stays while versions of a policy are looked at
 * @property {(() => Promise<object[]>)|undefined} versions what the policy showed in every version; none where there are too many
 */

/** Draw what is published. What is of no known kind is shown as it is. */
export function render(part, about) {
  return (Object.hasOwn(RENDERERS, part?.kind ?? "") ? RENDERERS[part.kind] : drawUnknown)(part, about);
}
