// Estimates and effects with their intervals: a drawing, what its marks mean, and the same as a table.

import { intervalChart } from "./charts.mjs";
import { counted, effectRows, estimateRows, markOf, parted } from "./decisions.mjs";
import { el, more } from "./dom.mjs";
import { table } from "./tables.mjs";
import { cell, figure } from "./words.mjs";

const AT_BOUND = "Estimates that came out beyond what is possible are drawn at the bound.";
const MARKS = { square: "Squares are decided.", ring: "Rings are not decided: their intervals hold 0.", diamond: "Diamonds are not decided, for another reason." };
const column = (name, kind) => ({ name, kind });
const ENDS = [column("low", "low"), column("high", "high")];

/** Estimates of what has no difference from 0 to tell; `of` is the kind of their figures. */
export function estimatesFinding(id, title, estimates, of, width) {
  if (!estimates.length) return null;
  const columns = [column("name", "words"), column("estimate", of), ...ENDS, column("people", "number")];
  const cells = estimates.map(({ name, value, low, high, people }) => [name, value, low, high, people]);
  return el("div", { class: "finding" }, el("h3", {}, title), drawn(id, title, estimateRows(estimates), of === "difference", width),
    boundHint(estimates), more(`${id}-more`, "As a table", table(id, title, columns, cells)));
}

/** Effects, each with the reason why it is decided or not. */
export function effectsFinding(id, title, effects, width) {
  if (!effects.length) return null;
  const isGrouped = effects.some(({ group }) => group !== null);
  const columns = [column("people", "words"), column("arm", "words"), column("effect", "difference"), ...ENDS, column("why", "words"),
    column("reports at that look", "count"), column("p", "probability"), column("least effect to be found", "difference"), column("part of the average", "difference")];
  const cells = effects.map((one) => [isGrouped ? one.group ?? "everybody" : null, one.option, one.value, one.low, one.high, reasonOf(one), one.people, one.p_value, one.detectable, one.contribution]);
  return el("div", { class: "finding" }, el("h3", {}, title), drawn(id, title, effectRows(effects), true, width), more(`${id}-more`, "As a table", table(id, title, columns, cells)));
}

const reasonOf = ({ reason, remark }) => (remark ? `${reason}; ${remark}` : reason);

/** What to say where an estimate stands at a bound. */
export const boundHint = (estimates) => (estimates.some(({ at_bound: isAtBound }) => isAtBound) ? el("p", { class: "hint" }, AT_BOUND) : null);

/** Rows in words, for those who do not see them drawn. */
export const spoken = (title, rows) => `${title}: ${rows.map(({ label, value, low, high, reason }) => (value === null ? `${label} ${reason}` :
  `${label} ${figure(value)}, from ${figure(low)} to ${figure(high)}${reason ? `, ${reason}` : ""}`)).join("; ")}`;

/** Rows with their intervals: what is decided at once, and of many the others when somebody asks. */
export function drawn(id, title, rows, differences, width) {
  const [shown, others] = parted(rows), isKnown = shown.some(({ value }) => value !== null);
  const said = rows.some(({ decided }) => decided !== null) ? "none of them decided" : "those listed last";
  return [isKnown ? null : el("p", {}, "Nothing is said of them yet."), intervalChart(spoken(title, shown), shown, differences, width), marks(rows),
    others.length ? more(`${id}-others`, `${cell(others.length)} more of ${cell(rows.length)}, ${said}`, () => intervalChart(spoken(title, others), others, differences, width)) : null];
}

/** What the marks mean, and how many rows there are of each reason, where there are several. */
function marks(rows) {
  const used = new Set(rows.filter(({ value }) => value !== null).map(markOf)), [reason, ...others] = new Set(rows.map((one) => one.reason));
  const said = Object.entries(MARKS).filter(([name]) => used.has(name)).map(([, text]) => text).join(" ");
  const why = others.length ? `Of ${cell(rows.length)}: ${counted(rows)}.` : reason && !used.has("ring") ? `All: ${reason}.` : "";
  return said || why ? el("p", { class: "hint" }, [said, why].filter(Boolean).join(" ")) : null;
}
