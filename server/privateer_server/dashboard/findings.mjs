// What the experiment has found: estimates with their intervals, effects over time, and what they rest on.

import { intervals, line } from "./charts.mjs";
import { counted, decidedInWords, effectParts, endedInWords, headline, markOf, parted, repeatsEffects } from "./decisions.mjs";
import { el, facts as pairs, more, replace } from "./dom.mjs";
import { estimatesOf, inBounds, isDifference, plainTables, seriesOf, stateEstimates, tableShape, widthsOf } from "./shapes.mjs";
import { table } from "./tables.mjs";
import { capital, cell, confidence, figure, many, spaced } from "./words.mjs";

const SERIES = 12, FEW = 200;

/** The panel; what somebody has opened stays open. */
export class FindingsPanel {
  show(place, facts, { result, state }, width) {
    const found = result?.result;
    replace(place, few(facts.accepted), found ? resultParts(found, facts, width) : withoutResult(facts),
      facts.accepted ? moved(state.state?.contradiction) : null, stateParts(state.state, Boolean(found) || !facts.accepted, facts.spec?.reward, width));
  }
}

function few(accepted) {
  if (accepted === 0) return el("p", { class: "note" }, "No report has been counted.");
  if (accepted >= FEW) return null;
  return el("p", { class: "note" }, `Only ${many(accepted, "report has", "reports have")} come. What is said of so few may well be wrong: read the intervals.`);
}

function withoutResult({ batch, publishes_result: publishes }) {
  if (publishes === false) return el("p", {}, "Its algorithm publishes no result: the policy below is all that it finds.");
  return el("p", {}, batch ? "There is no result so far. Wait for the end of the round." : "It ended without a result; the policy below is all that it found.");
}

function resultParts(result, { accepted, status }, width) {
  const [before, option, after] = headline(result, status), { estimates, tables } = result, ended = endedInWords(result, status);
  const said = el("p", { class: "recommended" }, before, option ? el("strong", {}, option) : null, after);
  const about = el("p", { class: "muted" }, [decidedInWords(result), `Intervals hold with ${confidence(result.confidence)} confidence, the noise of privacy included.`,
    ended || `So far ${many(accepted, "report has", "reports have")} come.`].filter(Boolean).join(" "));
  const shapes = tables.map(tableShape), effects = effectParts(result);
  const repeated = effects.length > 0 || (shapes.includes("intervals") && tables.some((one, n) => shapes[n] === "intervals" && isDifference(one)));
  const own = tables.filter((one) => repeatsEffects(result, one)).map((one, n) => more(`effects-${n}-more`, "As a table", table(`effects-${n}`, capital(one.title), one.columns, one.rows)));
  return [said, about, effects.map(({ id, title, rows }, n) => el("div", { class: "finding" }, el("h3", {}, title), drawn(id, title, rows, true, width), own[n])),
    repeated ? null : estimateParts("estimates", "Estimates", estimates.map((one) => ({ ...one, label: one.name, decided: null })), false, width),
    ...tables.map((one, n) => (repeatsEffects(result, one) ? null : tableParts(one, shapes[n], `result-${n}`, effects, width)))];
}

/** Estimates with their intervals: what is decided at once, and of many the others when somebody asks. */
function drawn(id, title, rows, differences, width) {
  const [shown, others] = parted(rows), known = shown.filter(({ value }) => value !== null);
  const said = (some) => `${title}: ${some.map((row) => (row.value === null ? `${row.label} ${row.reason}` : `${row.label} ${figure(row.value)}, from ${figure(row.low)} to ${figure(row.high)}${row.reason ? `, ${row.reason}` : ""}`)).join("; ")}`;
  return [known.length ? null : el("p", {}, "Nothing is said of them yet."), intervals(said(shown), shown, differences, width), marks(rows),
    others.length ? more(`${id}-others`, `${cell(others.length)} more of ${cell(rows.length)}, ${rows.some(({ decided }) => decided !== null) ? "none of them decided" : "those listed last"}`, () => intervals(said(others), others, differences, width)) : null];
}

/** A drawing of estimates, and the same as a table. */
function estimateParts(id, title, rows, differences, width) {
  if (!rows.length) return null;
  return el("div", { class: "finding" }, el("h3", {}, title), drawn(id, title, rows, differences, width),
    rows.some(({ bounded }) => bounded) ? el("p", { class: "hint" }, "Estimates that came out beyond the bounds of rewards are drawn at the bound: no mean can be there.") : null,
    more(`${id}-more`, "As a table", table(id, title, ["name", "estimate", "low", "high"], rows.map(({ label: name, value, low, high }) => [name, value, end(low), end(high)]))));
}

const end = (value) => (Number.isFinite(value) ? value : null);

const MARKS = { square: "Squares are decided.", ring: "Rings are not decided: their intervals hold 0.", diamond: "Diamonds are not decided, for another reason." };

/** What the marks mean, and how many rows there are of each reason. */
function marks(rows) {
  const used = new Set(rows.filter(({ value }) => value !== null).map(markOf)), all = counted(rows);
  const said = Object.entries(MARKS).filter(([name]) => used.has(name)).map(([, text]) => text).join(" ");
  return said || all ? el("p", { class: "hint" }, [said, all ? `Of ${cell(rows.length)}: ${all}.` : ""].filter(Boolean).join(" ")) : null;
}

function tableParts(one, shape, id, effects, width) {
  const title = capital(one.title), own = table(id, title, one.columns, one.rows, { titled: true });
  if (!one.rows.length) return null;
  if (shape === "facts") return el("div", { class: "finding" }, el("h3", {}, title), pairs(one.rows.filter((row) => row[1] !== null).map(([name, value]) => [capital(cell(name)), cell(value)])));
  if (shape === "plain") return el("div", { class: "finding" }, el("h3", {}, title), own);
  if (shape === "time") return timeParts(title, one, id, effects, own);
  const rows = estimatesOf(one);
  if (!rows.length) return el("div", { class: "finding" }, el("h3", {}, title), el("p", {}, "Nothing is said yet; the table says why."), own);
  return el("div", { class: "finding" }, el("h3", {}, title), drawn(id, title, rows, isDifference(one), width), more(`${id}-more`, "As a table", own));
}

/** Estimates over time, those that are decided first; of many the others when somebody asks. */
function timeParts(title, one, id, effects, own) {
  const decided = new Set(effects.flatMap(({ rows }) => rows).filter((row) => row.decided).map(({ label }) => label));
  const series = seriesOf(one).sort((first, second) => decided.has(second.label) - decided.has(first.label));
  const lines = (some) => el("div", { class: "smalls" }, some.map(({ label, points }) =>
    line(label, points.map(({ people, ...rest }) => ({ at: people, ...rest })), { differences: isDifference(one) })));
  return el("div", { class: "finding" }, el("h3", {}, title), series.length ? lines(series.slice(0, SERIES)) : el("p", {}, "Nothing is said yet."),
    series.length > SERIES ? more(`${id}-others`, `${cell(series.length - SERIES)} more of ${cell(series.length)}`, () => lines(series.slice(SERIES))) : null,
    more(`${id}-more`, "As a table", own));
}

/** Whether recent rounds contradict earlier ones, where the learner says it. */
function moved(contradiction) {
  if (!contradiction || typeof contradiction.found !== "boolean") return null;
  if (!contradiction.found) return el("p", {}, "Recent rounds do not contradict earlier ones.");
  return el("p", { class: "note" }, `Rounds after the first ${many(contradiction.since, "person", "people")} contradict those before, so rewards move. An experiment in which nothing moves warns so with probability ${figure(contradiction.false_alarm_rate)} at most.`);
}

/** What the learner knew when it made the policy: drawn where there are errors beside estimates, as tables otherwise. */
function stateParts(state, isTold, reward, width) {
  const { plain, tables } = plainTables(state), widths = widthsOf(state), arms = inBounds(stateEstimates(state?.arms), reward);
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
