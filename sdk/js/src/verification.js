// @ts-check
/** How a device checks the terms of a round: it computes everything anew, and never trusts the server's numbers. */

import { refused } from "./errors.js";
import { allotPromise, covers } from "./privacy/allotment.js";
import { COARSE } from "./privacy/composed.js";
import { hidesArms, armVisibility } from "./trust.js";

const BATCH_MAX = 100_000_000;
const DIGITS = 1 + 1e-6;
const FEW = 65_536;
const FAR = 4;
/** Who may see arms, from the promise that assumes least on. */
const VISIBILITIES = ["visible", "as-local", "grouped", "hidden"];
/** What a promise assumes of those who see arms. @type {Record<string, string>} */
const ASSUMED = {
  "as-local": "who sees which arm a person got learns from the report for which contexts that arm is",
  grouped: "the promise counts on nobody choosing by arm whose reports to drop or to falsify",
  hidden: "the promise counts on nobody seeing which arm a person got",
};

/**
 * What a device accepts; the application sets it, never a server.
 * @typedef {object} Limits
 * @property {number} epsilon the most that all reports to an experiment together may cost under its trust model
 * @property {number} delta
 * @property {number} local_epsilon the most that they may cost if everybody else colludes; a spec of epsilon 4 asks for 6 unless
 * it says less, and needs the application's consent
 * @property {number} honest_fraction the largest share of a batch that the promise may count on
 * @property {number} min_batch the fewest reports of a batch
 * @property {"visible" | "as-local" | "grouped" | "hidden"} arm_visibility who may see which arm this person got. "visible": the whole promise has to hold
 * against them; "as-local": it is enough that reports keep what they keep where nobody shuffles; "grouped": it holds as
 * long as nobody chooses by arm whose reports to drop or to falsify; "hidden": nobody who gets
 * reports, or reads releases, sees it. Each accepts what those before it do
 * @property {boolean} allow_central whether records may be sent to the server as they are, for it to protect or not; where it
 * does not, `epsilon` must be Infinity as well
 */

/** @type {Limits} */
export const LIMITS = {
  epsilon: 1, delta: 1e-5, local_epsilon: 4, honest_fraction: 0.9, min_batch: 1000, arm_visibility: "visible", allow_central: false,
};

/** Calibrations by accountants that this device has. */
const CALIBRATIONS = ["tight"];

/** @typedef {import("./mechanisms/index.js").Mechanism} Mechanism */
/** @typedef {import("./spec.js").Spec} Spec */
/** @typedef {import("./publication.js").Round} Round */

/**
 * Refuse terms that miss the spec's promise or the device's limits.
 * @param {any} terms @param {Mechanism} mechanism @param {Spec} spec @param {Round} round @param {Limits} limits
 */
export function verify(terms, mechanism, spec, round, limits) {
  const { privacy, trust } = spec;
  const expected = { model: privacy.model, epsilon: spec.bound, delta: privacy.delta };
  const people = { batch_size: round.batchSize, honest: trust.crowd === "batch" ? honestPeople(privacy, round.fewest) : 0, reports: spec.reports };
  check(CALIBRATIONS.includes(terms.calibration), "another accountant made the terms: update the application", "calibration");
  for (const [name, value] of Object.entries({ ...expected, ...people })) {
    check({ reports: 1, ...terms }[name] === value, "the terms differ from the experiment's spec", name);
  }
  const tiers = "tiers" in mechanism ? mechanism.tiers : 0;
  check(tiers === spec.tiers.length, "the round's tiers are not those of the spec", "mechanism.channels");
  const fewest = Math.max(round.batchSize, trust.crowd === "batch" ? privacy.min_batch : 0);
  check(round.fewest >= fewest, `the round may close with ${round.fewest} people, the spec says ${fewest} at least`, "least");
  checkLimits(mechanism, spec, round, limits);
  check(trust.crowd !== "batch" || mechanism.localEpsilon <= spec.aloneMost, "a report alone costs too much", "local_epsilon");
  check(trust.noise === "nobody" || keepsPromise(mechanism, spec, terms.honest), "the mechanism does not keep the promise", "delta");
}

/** Whether a mechanism keeps the promise. More people never harm, so what fewer reach needs no long computation.
 * @param {Mechanism} mechanism @param {Spec} spec @param {number} honest */
function keepsPromise(mechanism, spec, honest) {
  const curve = armVisibility(spec.trust, mechanism);
  const { delta } = spec.privacy;
  if (!curve) return false;
  if (spec.reports > 1) {
    // Releases that depend on each other's noise are not each an event of its own.
    const share = allotPromise(spec.bound, delta, spec.reports, spec.trust.least);
    return !("continues" in mechanism) && covers(share, curve, honest, mechanism.sampling);
  }
  /** @param {number} people @param {number} [points] */
  const epsilonOf = (people, points) => curve(people, points)(spec.bound) + mechanism.sampling;
  if (mechanism.messages > 1) {
    // A coarse grid is an upper bound, too, and far from delta a fine one says nothing else.
    const rough = epsilonOf(honest, COARSE);
    return rough <= delta || (rough <= FAR * delta && epsilonOf(honest) <= delta * DIGITS);
  }
  return epsilonOf(Math.min(honest, FEW)) <= 0.9 * delta || epsilonOf(honest) <= delta * DIGITS;
}

/** What is left if everybody else colludes; where records are sent that is nothing. @param {Mechanism} mechanism @param {Spec} spec */
export const localCost = (mechanism, { trust, reports, bound }) =>
  trust.crowd === "nobody" ? bound : reports * mechanism.localEpsilon;

/** @param {Mechanism} mechanism @param {Spec} spec @param {Round} round @param {Limits} limits */
function checkLimits(mechanism, spec, round, limits) {
  const { privacy, trust } = spec;
  checkArms(spec, limits);
  const sees = `under the model '${privacy.model}' the server sees records: set limits.allow_central if it may`;
  check(limits.allow_central || trust.curator === "nobody", sees, "model");
  const costs = { epsilon: spec.bound, delta: privacy.delta, local_epsilon: localCost(mechanism, spec) };
  const named = /** @type {(keyof typeof costs)[]} */ (trust.noise === "devices" ? ["epsilon", "delta", "local_epsilon"] : ["epsilon", "delta"]);
  for (const name of named) {
    check(costs[name] <= limits[name], `costs ${costs[name]}, this device allows ${limits[name]}: do not take part, or raise limits.${name}`, name);
  }
  if (trust.crowd !== "batch") return;
  check(privacy.honest_fraction <= limits.honest_fraction, "the promise counts on too many honest people", "honest_fraction");
  const isAccepted = limits.min_batch <= round.fewest && round.fewest <= BATCH_MAX;
  check(isAccepted, `a batch may have ${round.fewest} reports, this device takes ${limits.min_batch} or more: see limits.min_batch`, "batch_size");
}

/** Refuse a promise that assumes more about who sees arms than the device does. @param {Spec} spec @param {Limits} limits */
function checkArms({ privacy, trust }, limits) {
  const accepted = !hidesArms(trust) || VISIBILITIES.indexOf(privacy.arm_visibility) <= VISIBILITIES.indexOf(limits.arm_visibility);
  check(accepted, `${ASSUMED[privacy.arm_visibility]}: do not take part, or set limits.arm_visibility to '${privacy.arm_visibility}'`, "arm_visibility");
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
