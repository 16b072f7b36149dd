// Where an experiment stands, in words.

import { el } from "./dom.mjs";
import { count, many, moment, span } from "./words.mjs";

const MEANINGS = {
  open: "People who come are asked.",
  paused: "Nobody who comes now is asked; everybody gets the best policy so far.",
  draining: "Its planned people have come; it waits for late reports.",
  stopped: "Somebody stopped it; nobody is asked any more.",
  finished: "It is over; nobody is asked any more.",
  failed: "It failed: too few people came to a round before its deadline. Create another experiment, and ask other people.",
};
const SIGNS = { open: "●", paused: "❚❚", draining: "◔", stopped: "■", finished: "✓", failed: "✕" };

/** A status as a word with a sign. */
export const badge = (status) => el("span", { class: `badge ${status in SIGNS ? status : "other"}` },
  el("span", { "aria-hidden": "true" }, `${SIGNS[status] ?? "○"} `), status);

/** What a status means. */
export const meaning = (status) => MEANINGS[status] ?? "";

/** How many reports were counted, of those that may come or that were planned. */
export function countInWords({ status, accepted, planned }) {
  const of = `${count(accepted)} of ${many(planned, "report")}`;
  return ["stopped", "finished", "failed"].includes(status) ? `${of} that were planned at most; no more come.` : `${of} that may come at most.`;
}

/** How far the open round is. */
export function roundInWords({ batch, received, version }, deadline) {
  if (!batch) return `Version ${count(version)} asks nobody.`;
  const until = deadline ? ` It ends by ${moment(1000 * deadline)} at the latest.` : "";
  return `Round ${count(version)}: ${count(received)} of ${many(batch, "report")} have come.${until}`;
}

/** When the planned reports will have come, at the rate that this page has seen. */
export function endInWords({ status, accepted, planned, draining_until: drains }, found, now) {
  if (status === "draining" && drains) return `Late reports may come until ${moment(Date.parse(drains), now)}.`;
  if (status !== "open" || accepted >= planned) return "";
  if (!found) return "When it will end is not known yet: this page has to see reports come for a minute or more.";
  const left = found.end - now;
  if (left > 10 * 365 * 86_400_000) return "At the present rate it takes more than ten years.";
  return `It ends around ${moment(found.end, now)}, in about ${span(left)}, if reports go on coming as in the last ${span(found.since)} (${count(found.came)} came).`;
}
