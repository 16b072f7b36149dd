// Where an experiment stands, in words.

import { el } from "./dom.mjs";
import { isUnseen } from "./people.mjs";
import { formatNumber, formatCount, formatTime, formatDuration } from "./words.mjs";

const MEANINGS = {
  open: "People who come are asked.",
  paused: "Nobody who comes now is asked; everybody gets the best policy so far.",
  draining: "Its planned people have come; it waits for late reports.",
  stopped: "Somebody stopped it; nobody is asked any more.",
  finished: "It is over; nobody is asked any more.",
  failed: "It failed: too few people came to a round before its deadline. Create another experiment, and ask other people.",
};
const SIGNS = { open: "●", paused: "❚❚", draining: "◔", stopped: "■", finished: "✓", failed: "✕" };

const LONG = 10 * 365 * 86_400_000;
const UNITS = [[60_000, "a minute"], [3_600_000, "an hour"], [86_400_000, "a day"]];

/** A status as a word with a sign. */
export const makeBadge = (status) => el("span", { class: `badge ${Object.hasOwn(SIGNS, status) ? status : "other"}` },
  el("span", { "aria-hidden": "true" }, `${SIGNS[status] ?? "○"} `), status);

/** What a status means. */
export const describeStatus = (status) => MEANINGS[status] ?? "";

/** How far the open round is, and when it closes at the rate that this page has seen. */
export function describeRound({ batch_size: batchSize, received, version, people }, deadline, estimate = null, currentTime = Date.now()) {
  if (!batchSize) return `Version ${formatNumber(version)} asks nobody.`;
  const until = deadline ? ` It ends by ${formatTime(1000 * deadline)} at the latest.` : "";
  if (isUnseen(people)) return `Round ${formatNumber(version)} waits for its shuffler to deliver ${formatCount(batchSize - received, "report")}: what waits there is not seen here.${until}`;
  const remainingTime = estimate ? Math.max(0, batchSize - received) / estimate.rate : Infinity;
  const closes = remainingTime < LONG ? ` ${describeRate(estimate.rate)} come in, so that it closes around ${formatTime(currentTime + remainingTime, currentTime)}.` : "";
  return `Round ${formatNumber(version)}: ${formatNumber(received)} of ${formatCount(batchSize, "report")} have come.${closes}${until}`;
}

/** Since when it runs. */
export const describeStart = (began, currentTime) => (began ? `It began on ${new Date(began).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" })}, ${formatDuration(currentTime - Date.parse(began))} ago.` : "");

/** A rate of reports, in a unit in which it is above 1. */
function describeRate(rate) {
  const [times, unit] = UNITS.find(([size]) => rate * size >= 1) ?? UNITS.at(-1);
  return `About ${formatCount(Math.round(rate * times), "report")} ${unit}`;
}

/** When the people whom rounds reach will have come, at the rate that this page has seen. */
export function describeEnd({ status, people, draining_until: drains }, estimate, currentTime) {
  if (status === "draining" && drains) return `Late reports may come until ${formatTime(Date.parse(drains), currentTime)}.`;
  if (status !== "open" || !(people.not_asked + people.unknown)) return "";
  if (!estimate) return "When it will end is not known yet: this page has to see reports come for a minute or more.";
  const remainingTime = estimate.end - currentTime;
  if (remainingTime > LONG) return "At the present rate it takes more than ten years.";
  return `It ends around ${formatTime(estimate.end, currentTime)}, in about ${formatDuration(remainingTime)}, if reports go on coming as in the last ${formatDuration(estimate.since)} (${formatNumber(estimate.came)} came).`;
}
