// @ts-check
/** The reports of a device to one experiment: made for the round that is open, and paid for. */

import { isGivenUp, isSameChoice, withCorrectedDueTime } from "./choice.js";
import { PrivateerError, alreadyReported } from "./errors.js";
import { allows } from "./ledgers/ledger.js";
import { ALLOWED, OUTCOMES, nextState, findState } from "./states.js";
import { localCost } from "./verification.js";

const DAY = 86_400;

/** @typedef {import("./participation.js").Choice} Choice */
/** @typedef {import("./participation.js").Participation} Participation */
/** @typedef {import("./ledgers/ledger.js").Entry} Entry */

/** Whether no report of this device went to the round, or to a later one: no crowd hides two as it hides one.
 * @param {Entry} entry @param {Participation} opened */
export const isNew = ({ payment }, { round }) => payment === null || payment.version < round.version;

/** What the ledger has of an experiment if a choice is still kept; null: the person has erased it.
 * @param {import("./publications.js").Publications} publications @param {Choice} choice @returns {Promise<Entry | null>} */
export async function findStoredEntry({ client: { ledger }, identity }, choice) {
  const entry = await ledger.entry(identity);
  // Another tab, or process, may have reported since this session asked.
  if (entry.payment && !allows(entry.payment, choice.period)) throw alreadyReported();
  const stored = await ledger.unlockChoice(entry.choice, identity);
  return stored && isSameChoice(stored, choice) ? entry : null;
}

/**
 * Make the report on a choice that is kept, and pay for it; else nothing is paid: the open round does not take it, or the person
 * has erased it while a server took its time.
 * @param {import("./publications.js").Publications} publications @param {Choice} choice @param {Participation} opened
 * @returns {Promise<import("./ledgers/ledger.js").Sealed | "expired" | "erased">}
 */
export async function makeReport(publications, choice, opened) {
  const { client, identity } = publications;
  const entry = await findStoredEntry(publications, choice);
  if (!entry) return "erased";
  opened.check(choice);
  if (!opened.takes(choice.version) || !isNew(entry, opened)) return "expired";
  const sealed = { endpoint: publications.endpoint(opened), body: await opened.body(opened.message(choice)) };
  const isPaid = await client.ledger.pay(identity, payment(opened, choice, client.clock.now()), sealed, entry.choice);
  return isPaid ? sealed : makeReport(publications, choice, opened);
}

/** @param {Participation} opened @param {Choice} choice @param {number} now */
function payment({ round, spec, mechanism }, choice, now) {
  const finite = (/** @type {number} */ number) => (Number.isFinite(number) ? number : null);
  return {
    version: round.version,
    model: spec.privacy.model,
    epsilon: finite(spec.bound),
    delta: spec.privacy.delta,
    localEpsilon: mechanism && finite(localCost(mechanism, spec)),
    day: Math.floor(now / DAY),
    reports: spec.reports,
    // A clock that was ahead when choosing must not use up the periods until then.
    period: Math.min(choice.period, spec.periodOf(now)),
    pinned: pinned(spec),
  };
}

/** What must be the same for all reports of a person that share a promise; empty where nothing is shared. @param {import("./spec.js").Spec} spec */
function pinned(spec) {
  if (spec.reports === 1) return "";
  const { model, epsilon, delta, arm_visibility, honest_fraction } = spec.privacy;
  return JSON.stringify([spec.times, spec.period, model, epsilon, delta, arm_visibility, honest_fraction]);
}

/**
 * What becomes of the report on a choice that is due.
 * @param {import("./publications.js").Publications} publications @param {Choice} choice @param {number} now
 * @returns {Promise<"taken" | "declined" | "expired" | "erased" | "deleted">}
 */
async function tryReport(publications, choice, now) {
  try {
    const { participation } = await publications.openPublication(null);
    const report = await makeReport(publications, choice, participation);
    if (report !== "expired") return report === "erased" ? report : "taken";
  } catch (error) {
    if (!(error instanceof PrivateerError) || error.type === "ledger-unwritable") throw error;
    if (error.type === "unavailable") return "declined";
    if (error.type === "already-reported") return "taken";
    publications.client.refuse(); // the device goes on with nothing at a server that contradicts itself
    if (error.type === "deleted") return "deleted";
    // Of its terms: another round may do better.
  }
  return isGivenUp(choice, now) ? "expired" : "declined";
}

/**
 * Make the report on the choice that is kept, if it is due; it then waits to be sent.
 * @param {import("./publications.js").Publications} publications
 * @returns {Promise<import("./delivery.js").ReportStatus | null>} null: there is nothing to do any more
 */
export async function settleReports(publications) {
  const { client, identity } = publications;
  const { ledger } = client;
  const now = client.clock.now();
  let choice;
  try {
    choice = await ledger.choice(identity);
    if (choice && withCorrectedDueTime(choice, now) !== choice) choice = await ledger.keep(identity, (stored) => stored && withCorrectedDueTime(stored, now));
  } catch (error) {
    if (error instanceof PrivateerError && error.field === "key") return "pending"; // whoever joins the experiment is told
    throw error;
  }
  if (!choice) return null;
  const state = findState(choice, (await ledger.entry(identity)).payment, now, choice.period, () => false);
  if (state === "delivered") await ledger.eraseChoice(identity, choice);
  if (!ALLOWED[state].includes("make")) return null;
  const event = await tryReport(publications, choice, now);
  if (event === "expired") await ledger.eraseChoice(identity, choice);
  if (event === "deleted") await ledger.forget(identity);
  return event === "taken" ? null : (OUTCOMES[nextState(state, event)] ?? null);
}
