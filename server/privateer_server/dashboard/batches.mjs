// Batches that a shuffler delivered, and how old what it holds may be.

import { line } from "./charts.mjs";
import { el, facts as pairs } from "./dom.mjs";
import { count, many, moment, span } from "./words.mjs";

/** Sizes of the batches that were delivered, by version: a round is one batch, or was given up. */
export const delivered = (rounds, version) => rounds.filter((one) => one.received > 0 && one.version < version);

/**
 * Batches of an experiment that a shuffler has claimed, and since when its open round takes reports.
 *
 * @param {number|null} opened when the open round was published; null where it is not told
 */
export function batchesPart({ shuffler, batch, version }, rounds, opened, now) {
  const age = opened === null || !batch ? null : el("p", {}, `The open round takes reports since ${moment(opened, now)}, for ${span(now - opened)}${shuffler ? ": nothing that the shuffler holds for it is older" : ""}.`);
  if (!shuffler) return age;
  const done = delivered(rounds, version), sizes = done.map(({ received }) => received);
  return [el("h3", {}, "Batches of the shuffler"),
    pairs([["The open round's batch", batch ? many(batch, "person", "people") : "–"], ["Rounds delivered", count(done.length)],
      ...(sizes.length ? [["Smallest and largest", `${count(Math.min(...sizes))} and ${many(Math.max(...sizes), "person", "people")}`]] : [])]),
    new Set(sizes).size > 1 ? line("People in each round delivered", done.map(({ version: at, received: value }) => ({ at, value })), { unit: "versions" }) : null,
    age,
    el("p", { class: "muted" }, `The shuffler ${shuffler} tells nobody here how many reports it holds, nor since when: a count that moves would tell when somebody reports. A batch is counted once it is delivered as a whole.`)];
}
