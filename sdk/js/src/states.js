// @ts-check
/** The states of one person's choice in one experiment: docs/sdk/states.md, docs/behaviour.json, privateer_client/states.py. */

import { isDue } from "./choice.js";
import { allows } from "./ledgers/ledger.js";

/** @typedef {"offered" | "chosen" | "waiting" | "due" | "delivered" | "given-up" | "closed"} ChoiceState */
/** @typedef {"asked" | "unasked" | "decided" | "deferred" | "lapsed" | "outcome" | "window-ended" | "taken" | "declined" | "expired" | "erased"
 *   | "deleted"} ChoiceEvent */
/** `keep`: a choice that is made now. `show`: the choice that is kept. `stay`: the arm of before is what the person gets. `report`: an
 * outcome may count. `make`: `join` and `flush` make the report. @typedef {"keep" | "show" | "stay" | "report" | "make"} Action */

/** What comes after an event. @type {Record<ChoiceState, Partial<Record<ChoiceEvent, ChoiceState>>>} */
export const NEXT = {
  offered: { unasked: "closed", decided: "chosen", deferred: "waiting", outcome: "due", erased: "offered" },
  chosen: { lapsed: "offered", outcome: "due", erased: "offered" },
  waiting: { lapsed: "offered", outcome: "waiting", "window-ended": "due", erased: "offered" },
  due: { lapsed: "offered", outcome: "due", taken: "delivered", declined: "due", expired: "given-up", erased: "offered", deleted: "closed" },
  delivered: { asked: "offered", outcome: "delivered", erased: "delivered" },
  "given-up": { asked: "offered", unasked: "closed", outcome: "given-up", erased: "given-up" },
  closed: { asked: "offered", outcome: "closed", erased: "closed" },
};

/** What may be done. @type {Record<ChoiceState, Action[]>} */
export const ALLOWED = {
  offered: ["keep", "report"],
  chosen: ["show", "report"],
  waiting: ["show", "report"],
  due: ["stay", "report", "make"],
  delivered: ["stay"],
  "given-up": ["stay"],
  closed: ["stay"],
};

/** What `report` returns where it sends nothing. @type {Partial<Record<ChoiceState, import("./delivery.js").ReportStatus>>} */
export const OUTCOMES = { waiting: "pending", due: "pending", delivered: "already-reported", "given-up": "not-requested", closed: "not-requested" };

/** @param {ChoiceState} state @param {ChoiceEvent} event @returns {ChoiceState} */
export function nextState(state, event) {
  const next = NEXT[state][event];
  if (next) return next;
  throw new TypeError(`a choice that is ${state} cannot be ${event}`);
}

/**
 * The state of a choice by what a ledger has.
 * @param {import("./participation.js").Choice | null} stored @param {import("./ledgers/ledger.js").Payment | null} payment
 * @param {number} now seconds since 1970 @param {number} period in which now is @param {() => boolean} asks whether a round asks this person
 * @returns {ChoiceState}
 */
export function findState(stored, payment, now, period, asks) {
  if (payment && !allows(payment, stored?.period ?? period)) return "delivered";
  if (!stored) return asks() ? "offered" : "closed";
  return isDue(stored, now) ? "due" : stored.window ? "waiting" : "chosen";
}
