// What the experiment has found: estimates with their intervals, effects over time, and what they rest on.

import { intervals, line } from "./charts.mjs";
import { el, facts as pairs, more, replace } from "./dom.mjs";
import { estimatesOf, isDifference, plainTables, seriesOf, stateEstimates, tableShape, widthsOf } from "./shapes.mjs";
import { table } from "./tables.mjs";
import { capital, cell, confidence, figure, many, spaced } from "./words.mjs";

const DRAWN = 40, SERIES = 12, FEW = 200;

/** The panel; what somebody has opened stays open. */
export class FindingsPanel {
  show(place, facts, { result, state }, width) {
    const found = result?.result;
    replace(place, few(facts.accepted), found ? resultParts(found, facts, width) : withoutResult(facts),
      facts.accepted ? moved(state.state?.contradiction) : null, stateParts(state.state, Boolean(found) || !facts.accepted, width));
  }
}

function few(accepted) {
  if (accepted === 0) return el("p", { class: "note" }, "Nobody has reported yet.");
  if (accepted >= FEW) return null;
  return el("p", { class: "note" }, `Only ${many(accepted, "report has", "reports have")} come. What is said of so few may well be wrong: read the intervals.`);
}

function withoutResult({ batch }) {
  return el("p", {}, batch ? "There is no result so far. Wait for the end of the round; an algorithm that never publishes one has its findings in the policy below." : "It has published no result; its findings are in the policy below.");
}

function resultParts({ estimates, confidence: share, recommended, stopped, tables }, { accepted }, width) {
  const said = el("p", { class: "recommended" }, recommended === null
    ? "It recommends no single option so far."
    : [stopped ? "It recommends " : "So far it recommends ", el("strong", {}, recommended), "."]);
  const about = el("p", { class: "muted" }, `Intervals hold with ${confidence(share)} confidence, the noise of privacy included. ${stopped ? "It has found what it was looking for, or is over, and asks nobody any more." : `So far ${many(accepted, "report has", "reports have")} come.`}`);
  const shapes = tables.map(tableShape);
  const repeated = shapes.includes("intervals") && tables.some((one, n) => shapes[n] === "intervals" && isDifference(one));
  return [said, about, repeated ? null : estimateParts("estimates", "Estimates", estimates.map((one) => ({ ...one, label: one.name, decided: null })), false, width),
    ...tables.map((one, n) => tableParts(one, shapes[n], `result-${n}`, width))];
}

/** A drawing of estimates, and the same as a table. */
function estimateParts(id, title, rows, differences, width) {
  if (!rows.length) return null;
  const largest = rows.length > DRAWN ? [...rows].sort((one, other) => Math.abs(other.value) - Math.abs(one.value)).slice(0, DRAWN) : rows;
  const label = `${title}: ${largest.map((row) => `${row.label} ${figure(row.value)}, from ${figure(row.low)} to ${figure(row.high)}`).join("; ")}`;
  return el("div", { class: "finding" }, el("h3", {}, title),
    rows.length > DRAWN ? el("p", { class: "muted" }, `The ${DRAWN} largest of ${cell(rows.length)}.`) : null,
    intervals(label, largest, differences, width), marks(largest),
    more(`${id}-more`, "As a table", table(id, title, ["name", "estimate", "low", "high"], rows.map(({ label: name, value, low, high }) => [name, value, end(low), end(high)]))));
}

const end = (value) => (Number.isFinite(value) ? value : null);

function marks(rows) {
  if (!rows.some((row) => row.decided !== null)) return null;
  return el("p", { class: "hint" }, "A square is decided; a ring is not.");
}

function tableParts(one, shape, id, width) {
  const title = capital(one.title), own = table(id, title, one.columns, one.rows, { titled: true });
  if (!one.rows.length) return null;
  if (shape === "facts") return el("div", { class: "finding" }, el("h3", {}, title), pairs(one.rows.filter((row) => row[1] !== null).map(([name, value]) => [capital(cell(name)), cell(value)])));
  if (shape === "plain") return el("div", { class: "finding" }, el("h3", {}, title), own);
  if (shape === "time") return timeParts(title, one, id, own);
  const rows = estimatesOf(one);
  if (!rows.length) return el("div", { class: "finding" }, el("h3", {}, title), el("p", {}, "Nothing is said yet; the table says why."), own);
  const label = `${title}: ${rows.map((row) => `${row.label} ${figure(row.value)}, from ${figure(row.low)} to ${figure(row.high)}`).join("; ")}`;
  return el("div", { class: "finding" }, el("h3", {}, title), intervals(label, rows.slice(0, DRAWN), isDifference(one), width),
    marks(rows), more(`${id}-more`, "As a table", own));
}

function timeParts(title, one, id, own) {
  const series = seriesOf(one);
  return el("div", { class: "finding" }, el("h3", {}, title),
    series.length ? el("div", { class: "smalls" }, series.slice(0, SERIES).map(({ label, points }) =>
      line(label, points.map(({ people, ...rest }) => ({ at: people, ...rest })), { differences: isDifference(one) }))) : el("p", {}, "Nothing is said yet."),
    series.length > SERIES ? el("p", { class: "muted" }, `The first ${SERIES} of ${cell(series.length)}; the table has all.`) : null,
    more(`${id}-more`, "As a table", own));
}

/** Whether recent rounds contradict earlier ones, where the learner says it. */
function moved(contradiction) {
  if (!contradiction || typeof contradiction.found !== "boolean") return null;
  if (!contradiction.found) return el("p", {}, "Recent rounds do not contradict earlier ones.");
  return el("p", { class: "note" }, `Rounds after the first ${many(contradiction.since, "person", "people")} contradict those before, so rewards move. An experiment in which nothing moves warns so with probability ${figure(contradiction.false_alarm_rate)} at most.`);
}

/** What the learner knew when it made the policy: drawn where there are errors beside estimates, as tables otherwise. */
function stateParts(state, isTold, width) {
  const { plain, tables } = plainTables(state), widths = widthsOf(state), arms = stateEstimates(state?.arms);
  const shown = tables.filter(({ title }) => title !== "bins" && title !== "contradiction");
  const words = plain.filter(([, value]) => value === null || typeof value !== "object");
  return [
    arms && !isTold ? estimateParts("state-arms", "Estimates by arm, each with an interval of about 95 %", arms, false, width) : null,
    widths && widths.rows.length && !isTold ? estimateParts("state-widths", `${capital(spaced(widths.key))}, with their widths`, widths.rows, false, width) : null,
    words.length || shown.length ? more("state", "What the learner knew when it made the policy",
      pairs(words.map(([key, value]) => [capital(spaced(key)), cell(value)])),
      shown.map(({ title, columns, rows }, n) => table(`state-${n}`, capital(spaced(title)), columns, rows))) : null,
  ];
}
