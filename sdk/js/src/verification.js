// @ts-check
/** How a device checks the terms of a round: it computes everything anew, and never trusts the server's numbers. */

import { shuffledDelta } from "./amplification.js";
import { refused } from "./errors.js";

const BATCH_MAX = 100_000_000;
const DIGITS = 1 + 1e-6;
const FEW = 65_536;

/**
 * What a device accepts; the application sets it, never a server.
 * @typedef {object} Limits
 * @property {number} epsilon the most that the report may cost under its trust model
 * @property {number} delta
 * @property {number} local_epsilon the most that it may cost if everybody else colludes
 * @property {number} honest_fraction the largest share of a batch that the promise may count on
 * @property {number} min_batch the fewest reports of a batch
 * @property {"seen" | "hidden"} arms "hidden": nobody who gets reports sees which arm this person got
 */

/** @type {Limits} */
export const LIMITS = { epsilon: 1, delta: 1e-5, local_epsilon: 4, honest_fraction: 0.9, min_batch: 1000, arms: "seen" };

/**
 * Refuse terms that miss the spec's promise or the device's limits.
 * @param {any} terms @param {import("./algorithms/index.js").Symbols} mechanism
 * @param {import("./spec.js").Spec} spec @param {import("./publication.js").Round} round @param {Limits} limits
 */
export function verify(terms, mechanism, spec, round, limits) {
  const { privacy } = spec;
  const batched = privacy.model === "shuffle";
  check(privacy.model === "local" || batched, "this client takes part under the models local and shuffle", "model");
  const expected = { model: privacy.model, epsilon: privacy.epsilon, delta: privacy.delta, calibration: "tight" };
  const people = { batch: round.batch, honest: batched ? honestPeople(privacy, round.fewest) : 0, reports: 1 };
  for (const [name, value] of Object.entries({ ...expected, ...people })) {
    check({ reports: 1, ...terms }[name] === value, "the terms differ from the experiment's spec", name);
  }
  check(round.fewest >= Math.max(round.batch, batched ? privacy.min_batch : 0), "the round may close too early", "least");
  afford(mechanism, spec, round, limits, batched);
  check(!batched || mechanism.epsilon <= privacy.local_epsilon_max, "a report alone costs too much", "local_epsilon");
  const holds = batched ? hides(mechanism, privacy, terms.honest) : mechanism.epsilon <= privacy.epsilon;
  check(holds, "the mechanism does not keep the promise", "delta");
}

/** Whether a batch keeps a promise. More people never harm, so a delta that fewer reach needs no long computation.
 * @param {import("./algorithms/index.js").Symbols} mechanism @param {import("./spec.js").Privacy} privacy
 * @param {number} honest */
function hides({ epsilon, symbols }, privacy, honest) {
  const delta = (/** @type {number} */ people) => shuffledDelta(privacy.epsilon, epsilon, symbols, people);
  return delta(Math.min(honest, FEW)) <= 0.9 * privacy.delta || delta(honest) <= privacy.delta * DIGITS;
}

/** @param {import("./algorithms/index.js").Symbols} mechanism @param {import("./spec.js").Spec} spec
 * @param {import("./publication.js").Round} round @param {Limits} limits @param {boolean} batched */
function afford(mechanism, { privacy }, round, limits, batched) {
  const unseen = limits.arms === "hidden" || !(batched && privacy.arms === "hidden");
  check(unseen, "the promise counts on nobody seeing which arm a person got", "arms");
  const local_epsilon = batched ? mechanism.epsilon : privacy.epsilon;
  const costs = { epsilon: privacy.epsilon, delta: privacy.delta, local_epsilon };
  for (const name of /** @type {const} */ (["epsilon", "delta", "local_epsilon"])) {
    check(costs[name] <= limits[name], `costs ${costs[name]}, this device allows ${limits[name]}`, name);
  }
  if (!batched) return;
  check(privacy.honest_fraction <= limits.honest_fraction, "the promise counts on too many honest people", "honest_fraction");
  const taken = limits.min_batch <= round.fewest && round.fewest <= BATCH_MAX;
  check(taken, `a batch may have ${round.fewest} reports, this device takes ${limits.min_batch} or more`, "batch");
}

/** People of a batch that the promise counts on, rounded down to three digits.
 * @param {import("./spec.js").Privacy} privacy @param {number} fewest */
export function honestPeople(privacy, fewest) {
  const count = Math.floor(privacy.honest_fraction * fewest);
  const step = 10 ** Math.max(0, String(count).length - 3);
  return Math.floor(count / step) * step;
}

/** NaN is refused, since comparisons with it are false. @param {boolean} good @param {string} detail @param {string} field */
function check(good, detail, field) {
  if (!good) throw refused(detail, field);
}
