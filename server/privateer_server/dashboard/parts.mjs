// The parts of an answer, each drawn by its kind.

import { line } from "./charts.mjs";
import { pathsOf } from "./decisions.mjs";
import { el, more } from "./dom.mjs";
import { effectsFinding, estimatesFinding } from "./estimates.mjs";
import { factPairs, table } from "./tables.mjs";
import { capital, cell, figure, many } from "./words.mjs";

const SERIES = 12;
const DECIDED = "decided against all other options";

const finding = (title, ...children) => el("div", { class: "finding" }, el("h3", {}, title), ...children);

/** Who should get what. */
export function rules({ rules: rows }, { id }) {
  return finding("Recommendations", table(id, "Recommendations", ["people", "arm", "decided", "why"],
    rows.map(({ group, option, ground }) => [group, option, ground === DECIDED, ground]), { titled: true }));
}

export const guardrail = ({ name, effects }, { id, width }) => effectsFinding(id, `Guardrail: ${name}`, effects, width);

export const intervals = ({ title, of, estimates }, { id, width }) => estimatesFinding(id, capital(title), estimates, of, width);

/** What people lose who get what is recommended. */
export const losses = ({ losses: rows }, { id }) => finding("What a person loses by following it", table(id, "What a person loses by following it", ["who gets", "loses, expected", "at most"],
  rows.map(({ name, expected, most }) => [name, expected, most]), { titled: true }));

export const figures = ({ title, facts }) => finding(capital(title), factPairs(facts));

export const tabled = ({ title, columns, rows }, { id }) => finding(capital(title), table(id, capital(title), columns, rows, { titled: true }));

/** Effects over time, those that are decided first; of many the others when somebody asks. */
export function overTime({ people, effects }, { id, answer }) {
  const series = pathsOf({ people, effects }, answer.effects);
  const lines = (some) => el("div", { class: "smalls" }, some.map(({ label, points }) => line(label, points, { differences: true })));
  const columns = [{ name: "reports", kind: "count" }, { name: "effect on", kind: "words" }, { name: "effect", kind: "difference" }, { name: "low", kind: "low" }, { name: "high", kind: "high" }];
  const rows = () => series.flatMap(({ label, points }) => points.map(({ at, value, low, high }) => [at, label, value, low, high]));
  return finding("Over time", series.length ? lines(series.slice(0, SERIES)) : el("p", {}, "Nothing is said yet."),
    series.length > SERIES ? more(`${id}-others`, `${cell(series.length - SERIES)} more of ${cell(series.length)}`, () => lines(series.slice(SERIES))) : null,
    more(`${id}-more`, "As a table", () => table(id, "Effects over time", columns, rows())));
}

/** Whether recent rounds contradict earlier ones. */
export function contradiction({ found, since, false_alarm_rate: rate }) {
  if (!found) return el("p", {}, "Recent rounds do not contradict earlier ones.");
  return el("p", { class: "note" }, `Rounds after the first ${many(since, "person", "people")} contradict those before, so rewards move. An experiment in which nothing moves warns so with probability ${figure(rate)} at most.`);
}

/** Which features matter. */
export function features({ people, candidates, kept, gains }, { id }) {
  const asked = `${many(people, "person", "people")} ${people === 1 ? "was" : "were"} asked about one feature at a time`;
  if (kept === null) return finding("Features", el("p", {}, `So far ${asked}, to find out which of ${many(candidates, "feature")} matter.`));
  const rows = Object.entries(gains ?? {}).sort((one, other) => other[1] - one[1]).map(([name, gain]) => [name, gain, kept.includes(name)]);
  return finding("Features", el("p", {}, `Of ${many(candidates, "feature")}, ${kept.length} ${kept.length === 1 ? "is" : "are"} kept: ${kept.join(", ") || "not one"}. ${capital(asked)}.`),
    rows.length ? more(`${id}-more`, "The gain of each feature", table(id, "The gain of each feature", ["feature", "gain", "kept"], rows)) : null);
}

const life = (people) => (people === null ? "never" : many(Math.round(people), "person", "people"));

/** How fast what was learned is forgotten. */
export function halfLives({ used, candidates, probabilities }, { id }) {
  const said = used === null ? "Nothing is forgotten." : `What was learned counts half after ${life(used)}.`;
  const columns = [{ name: "half-life", kind: "words" }, { name: "probability", kind: "probability" }, { name: "used", kind: "yes or no" }];
  const rows = candidates.map((one, n) => [life(one), probabilities?.[n] ?? null, one === used]);
  return finding("Forgetting", el("p", {}, said), candidates.length > 1 ? more(`${id}-more`, "All half-lives that were tried", table(id, "Half-lives that were tried", columns, rows)) : null);
}
