// The parts of an answer, each drawn by its kind.

import { drawLine } from "./charts.mjs";
import { makePaths } from "./decisions.mjs";
import { el, makeDetails } from "./dom.mjs";
import { makeEffectsFinding, makeEstimatesFinding } from "./estimates.mjs";
import { makeKnownFacts, makeTable } from "./tables.mjs";
import { capitalize, formatCell, formatFigure, formatCount } from "./words.mjs";

const SERIES = 12;
const DECIDED = "decided against all other options";

const finding = (title, ...children) => el("div", { class: "finding" }, el("h3", {}, title), ...children);

/** Who should get what. */
export function rules({ rules: rows }, { id }) {
  return finding("Recommendations", makeTable(id, "Recommendations", ["people", "arm", "decided", "why"],
    rows.map(({ group, arm, basis }) => [group, arm, basis === DECIDED, basis]), { titled: true }));
}

export const guardrail = ({ name, effects }, { id, width }) => makeEffectsFinding(id, `Guardrail: ${name}`, effects, width);

export const intervals = ({ title, of, estimates }, { id, width }) => makeEstimatesFinding(id, capitalize(title), estimates, of, width);

/** What people lose who get what is recommended. */
export const losses = ({ expected_losses: rows }, { id }) => finding("What a person loses by following it", makeTable(id, "What a person loses by following it", ["who gets", "loses, expected", "at most"],
  rows.map(({ name, expected, most }) => [name, expected, most]), { titled: true }));

export const figures = ({ title, facts }) => finding(capitalize(title), makeKnownFacts(facts));

export const tabled = ({ title, columns, rows }, { id }) => finding(capitalize(title), makeTable(id, capitalize(title), columns, rows, { titled: true }));

/** Effects over time, those that are decided first; of many the others when somebody asks. */
export function overTime({ people, effects }, { id, answer }) {
  const series = makePaths({ people, effects }, answer.effects);
  const lines = (shown) => el("div", { class: "smalls" }, shown.map(({ label, points }) => drawLine(label, points, { differences: true })));
  const columns = [{ name: "reports", kind: "count" }, { name: "effect on", kind: "words" }, { name: "effect", kind: "difference" }, { name: "low", kind: "low" }, { name: "high", kind: "high" }];
  const rows = () => series.flatMap(({ label, points }) => points.map(({ at, value, low, high }) => [at, label, value, low, high]));
  return finding("Over time", series.length ? lines(series.slice(0, SERIES)) : el("p", {}, "Nothing is said yet."),
    series.length > SERIES ? makeDetails(`${id}-others`, `${formatCell(series.length - SERIES)} more of ${formatCell(series.length)}`, () => lines(series.slice(SERIES))) : null,
    makeDetails(`${id}-more`, "As a table", () => makeTable(id, "Effects over time", columns, rows())));
}

/** Whether recent rounds contradict earlier ones. */
export function driftTest({ detected, since, false_alarm_rate: rate }) {
  if (!detected) return el("p", {}, "Recent rounds do not contradict earlier ones.");
  return el("p", { class: "note" }, `Rounds after the first ${formatCount(since, "person", "people")} contradict those before, so rewards move. An experiment in which nothing moves warns so with probability ${formatFigure(rate)} at most.`);
}

/** Which features matter. */
export function features({ people, candidates, kept, gains }, { id }) {
  const askedText = `${formatCount(people, "person", "people")} ${people === 1 ? "was" : "were"} asked about one feature at a time`;
  if (kept === null) return finding("Features", el("p", {}, `So far ${askedText}, to find out which of ${formatCount(candidates, "feature")} matter.`));
  const rows = Object.entries(gains ?? {}).sort((first, second) => second[1] - first[1]).map(([name, gain]) => [name, gain, kept.includes(name)]);
  return finding("Features", el("p", {}, `Of ${formatCount(candidates, "feature")}, ${kept.length} ${kept.length === 1 ? "is" : "are"} kept: ${kept.join(", ") || "not one"}. ${capitalize(askedText)}.`),
    rows.length ? makeDetails(`${id}-more`, "The gain of each feature", makeTable(id, "The gain of each feature", ["feature", "gain", "kept"], rows)) : null);
}

const describeLife = (people) => (people === null ? "never" : formatCount(Math.round(people), "person", "people"));

/** How fast what was learned is forgotten. */
export function halfLives({ used, candidates, probabilities }, { id }) {
  const sentence = used === null ? "Nothing is forgotten." : `What was learned counts half after ${describeLife(used)}.`;
  const columns = [{ name: "half-life", kind: "words" }, { name: "probability", kind: "probability" }, { name: "used", kind: "yes or no" }];
  const rows = candidates.map((candidate, n) => [describeLife(candidate), probabilities?.[n] ?? null, candidate === used]);
  return finding("Forgetting", el("p", {}, sentence), candidates.length > 1 ? makeDetails(`${id}-more`, "All half-lives that were tried", makeTable(id, "Half-lives that were tried", columns, rows)) : null);
}
