// Batches that a shuffler delivered, and how old what it holds may be.

import { drawLine } from "./charts.mjs";
import { el, makeFactList } from "./dom.mjs";
import { formatNumber, formatCount, formatTime, formatDuration } from "./words.mjs";

/** Sizes of the batches that were delivered, by version: a round is one batch, or was given up. */
export const selectDelivered = (rounds, version) => rounds.filter((round) => round.received > 0 && round.version < version);

/**
 * Batches of an experiment that a shuffler has claimed, and since when its open round takes reports.
 *
 * @param {number|null} openedAt when the open round was published; null where it is not told
 */
export function batchesPart({ shuffler, batch_size: batchSize, version }, rounds, openedAt, currentTime) {
  const age = openedAt === null || !batchSize ? null : el("p", {}, `The open round takes reports since ${formatTime(openedAt, currentTime)}, for ${formatDuration(currentTime - openedAt)}${shuffler ? ": nothing that the shuffler holds for it is older" : ""}.`);
  if (!shuffler) return age;
  const deliveredRounds = selectDelivered(rounds, version), sizes = deliveredRounds.map(({ received }) => received);
  return [el("h3", {}, "Batches of the shuffler"),
    makeFactList([["The open round's batch", batchSize ? formatCount(batchSize, "person", "people") : "–"], ["Rounds delivered", formatNumber(deliveredRounds.length)],
      ...(sizes.length ? [["Smallest and largest", `${formatNumber(Math.min(...sizes))} and ${formatCount(Math.max(...sizes), "person", "people")}`]] : [])]),
    new Set(sizes).size > 1 ? drawLine("People in each round delivered", deliveredRounds.map(({ version: at, received: value }) => ({ at, value })), { unit: "versions" }) : null,
    age,
    el("p", { class: "muted" }, `The shuffler ${shuffler} tells nobody here how many reports it holds, nor since when: a count that moves would tell when somebody reports. A batch is counted once it is delivered as a whole.`)];
}
