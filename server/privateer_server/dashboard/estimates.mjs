// Estimates and effects with their intervals: a drawing, what its marks mean, and the same as a table.

import { drawIntervals } from "./charts.mjs";
import { countReasons, makeEffectRows, makeEstimateRows, chooseMark, splitRows } from "./decisions.mjs";
import { el, makeDetails } from "./dom.mjs";
import { makeTable } from "./tables.mjs";
import { formatCell, formatFigure } from "./words.mjs";

const AT_BOUND = "Estimates that came out beyond what is possible are drawn at the bound.";
const MARKS = { square: "Squares are decided.", ring: "Rings are not decided: their intervals hold 0.", diamond: "Diamonds are not decided, for another reason." };
const column = (name, kind) => ({ name, kind });
const ENDS = [column("low", "low"), column("high", "high")];

/** Estimates of what has no difference from 0 to tell; `of` is the kind of their figures. */
export function makeEstimatesFinding(id, title, estimates, figureKind, width) {
  if (!estimates.length) return null;
  const columns = [column("name", "words"), column("estimate", figureKind), ...ENDS, column("people", "number")];
  const cells = estimates.map(({ name, value, low, high, people }) => [name, value, low, high, people]);
  return el("div", { class: "finding" }, el("h3", {}, title), drawRows(id, title, makeEstimateRows(estimates), figureKind === "difference", width),
    makeBoundHint(estimates), makeDetails(`${id}-more`, "As a table", makeTable(id, title, columns, cells)));
}

/** Effects, each with the reason why it is decided or not. */
export function makeEffectsFinding(id, title, effects, width) {
  if (!effects.length) return null;
  const isGrouped = effects.some(({ group }) => group !== null);
  const columns = [column("people", "words"), column("arm", "words"), column("effect", "difference"), ...ENDS, column("why", "words"),
    column("reports at that look", "count"), column("p", "probability"), column("least effect to be found", "difference"), column("part of the average", "difference")];
  const cells = effects.map((effect) => [isGrouped ? effect.group ?? "everybody" : null, effect.arm, effect.value, effect.low, effect.high, joinReason(effect), effect.people, effect.p_value, effect.detectable, effect.contribution]);
  return el("div", { class: "finding" }, el("h3", {}, title), drawRows(id, title, makeEffectRows(effects), true, width), makeDetails(`${id}-more`, "As a table", makeTable(id, title, columns, cells)));
}

const joinReason = ({ reason, remark }) => (remark ? `${reason}; ${remark}` : reason);

/** What to say where an estimate stands at a bound. */
export const makeBoundHint = (estimates) => (estimates.some(({ at_bound: isAtBound }) => isAtBound) ? el("p", { class: "hint" }, AT_BOUND) : null);

/** Rows in words, for those who do not see them drawn. */
export const describeRows = (title, rows) => `${title}: ${rows.map(({ label, value, low, high, reason }) => (value === null ? `${label} ${reason}` :
  `${label} ${formatFigure(value)}, from ${formatFigure(low)} to ${formatFigure(high)}${reason ? `, ${reason}` : ""}`)).join("; ")}`;

/** Rows with their intervals: what is decided at once, and of many the others when somebody asks. */
export function drawRows(id, title, rows, differences, width) {
  const [drawn, others] = splitRows(rows), isKnown = drawn.some(({ value }) => value !== null);
  const hiddenText = rows.some(({ decided }) => decided !== null) ? "none of them decided" : "those listed last";
  return [isKnown ? null : el("p", {}, "Nothing is said of them yet."), drawIntervals(describeRows(title, drawn), drawn, differences, width), makeMarksLegend(rows),
    others.length ? makeDetails(`${id}-others`, `${formatCell(others.length)} more of ${formatCell(rows.length)}, ${hiddenText}`, () => drawIntervals(describeRows(title, others), others, differences, width)) : null];
}

/** What the marks mean, and how many rows there are of each reason, where there are several. */
function makeMarksLegend(rows) {
  const used = new Set(rows.filter(({ value }) => value !== null).map(chooseMark)), [reason, ...others] = new Set(rows.map((row) => row.reason));
  const legend = Object.entries(MARKS).filter(([name]) => used.has(name)).map(([, text]) => text).join(" ");
  const reasons = others.length ? `Of ${formatCell(rows.length)}: ${countReasons(rows)}.` : reason && !used.has("ring") ? `All: ${reason}.` : "";
  return legend || reasons ? el("p", { class: "hint" }, [legend, reasons].filter(Boolean).join(" ")) : null;
}
