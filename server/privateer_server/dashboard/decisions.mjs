// What a result decides, and why: the rows of its drawings, as the server says them. Pure: no page is needed.

import { count, many } from "./words.mjs";

export const DRAWN = 40;
const HOLDS_ZERO = "its interval holds 0", DECIDED = ["decided better", "decided worse", "decided at an earlier look"];

/** Whether a reason is that something is decided. */
export const isDecided = (reason) => DECIDED.includes(reason);

/** Estimates as rows of a drawing: nobody says that one of them is decided. */
export const estimateRows = (estimates) => estimates.map(({ name: label, value, low, high }) => ({ label, value, low, high, decided: null }));

const labelOf = ({ option, group }, isGrouped) => (isGrouped ? `${group ?? "everybody"} · ${option}` : option);
const areGrouped = (effects) => effects.some(({ group }) => group !== null);

/** Effects as rows of a drawing; a value of null: nothing is known, and the reason says why. An end of null is open. */
export function effectRows(effects) {
  const isGrouped = areGrouped(effects);
  return effects.map((one) => ({
    label: labelOf(one, isGrouped), value: one.value, low: one.low ?? -Infinity, high: one.high ?? Infinity,
    decided: isDecided(one.reason), reason: one.reason, remark: one.remark,
  }));
}

/** The drawings of an answer's effects, those by group first: `[{id, title, effects}]`. */
export function effectParts({ effects }) {
  const grouped = effects.filter(({ group }) => group !== null), whole = effects.filter(({ group }) => group === null);
  return [
    { id: "effects", title: "Effects against the control, by group", effects: grouped },
    { id: "averages", title: grouped.length ? "Average effects" : "Effects against the control", effects: whole },
  ].filter((part) => part.effects.length);
}

/** Effects over time as lines, those first that are decided now: `[{label, points: [{at, value, low, high}]}]`. */
export function pathsOf({ people, effects }, now) {
  const isNow = ({ option, group }) => now.some((one) => one.option === option && one.group === group && isDecided(one.reason));
  const isGrouped = areGrouped(effects), series = effects.map((one) => ({
    label: labelOf(one, isGrouped), decided: isNow(one),
    points: people.map((at, n) => ({ at, value: one.values[n], low: one.lows[n] ?? -Infinity, high: one.highs[n] ?? Infinity })).filter(({ value }) => value !== null),
  }));
  return series.filter(({ points }) => points.length).sort((one, other) => other.decided - one.decided);
}

/** Rows in the order in which they are drawn: what is decided first, what nothing is known of last. */
export function ranked(rows) {
  const rank = ({ decided, value }) => (decided ? 0 : value === null ? 2 : 1);
  return [...rows].sort((one, other) => rank(one) - rank(other));
}

/** The rows that are drawn at once, all that are decided among them, and those that somebody has to open. */
export function parted(rows, most = DRAWN) {
  const all = ranked(rows), shown = Math.max(most, all.filter(({ decided }) => decided).length);
  return all.length <= shown + 5 ? [all, []] : [all.slice(0, shown), all.slice(shown)];
}

/** How many rows there are of each reason, in words; empty where no reasons are said. */
export function counted(rows) {
  const found = new Map();
  for (const { reason } of rows) if (reason) found.set(reason, (found.get(reason) ?? 0) + 1);
  return [...found].sort(([one], [other]) => isDecided(other) - isDecided(one)).map(([reason, number]) => `${reason}: ${count(number)}`).join("; ");
}

/** How an undecided row is marked: `ring`, or `diamond` where the reason is not that its interval holds 0. */
export const markOf = ({ decided, reason }) => (decided === true ? "square" : decided === null || decided === undefined ? "disc" :
  reason && reason !== HOLDS_ZERO ? "diamond" : "ring");

/** How many effects are decided, in a sentence; empty where there are none. */
export function decidedInWords({ effects }) {
  if (!effects.length) return "";
  const [better, worse, earlier] = DECIDED.map((reason) => effects.filter((one) => one.reason === reason).length);
  if (!(better + worse + earlier)) return `None of ${many(effects.length, "effect")} is decided.`;
  return `Of ${many(effects.length, "effect")}, ${count(better)} ${better === 1 ? "is" : "are"} decided better and ${count(worse)} worse${earlier ? `, and ${count(earlier)} at an earlier look` : ""}.`;
}

/** What the figures rest on, in a sentence; empty where that is not known, or nothing. */
export function restsOn({ people, rounds }) {
  const told = [people && many(people, "person", "people"), rounds && many(rounds, "round")].filter(Boolean);
  return told.length ? `The figures rest on ${told.join(" in ")}.` : "";
}

const ENDINGS = {
  "its rule": "The rule that it declared ended it, and nobody is asked any more.",
  "its rows": "Its rows are all that there is of it: nobody is asked.",
  "its horizon": "Its horizon ended it: the planned people were asked, and nobody is asked any more.",
  "an operator": "An operator stopped it, and nobody is asked any more.",
};

/** Why nobody is asked any more, in a sentence; empty while people are. */
export function endedInWords({ ended, status }) {
  if (status === "failed") return "It failed, and nobody is asked any more.";
  if (ended) return ENDINGS[ended] ?? `What ended it: ${ended}.`;
  return status === "ended" ? "Nobody is asked any more." : "";
}
