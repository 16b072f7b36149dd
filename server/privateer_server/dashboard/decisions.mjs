// What a result decides, and why: the rows of its drawings, as the server says them. Pure: no page is needed.

import { formatNumber, formatCount } from "./words.mjs";

export const DRAWN = 40;
const HOLDS_ZERO = "its interval holds 0", DECIDED = ["decided better", "decided worse", "decided at an earlier look"];

/** Whether a reason is that something is decided. */
export const isDecided = (reason) => DECIDED.includes(reason);

/** Estimates as rows of a drawing: nobody says that one of them is decided. */
export const makeEstimateRows = (estimates) => estimates.map(({ name: label, value, low, high }) => ({ label, value, low, high, decided: null }));

const makeLabel = ({ arm, group }, isGrouped) => (isGrouped ? `${group ?? "everybody"} · ${arm}` : arm);
const areGrouped = (effects) => effects.some(({ group }) => group !== null);

/** Effects as rows of a drawing; a value of null: nothing is known, and the reason says why. An end of null is open. */
export function makeEffectRows(effects) {
  const isGrouped = areGrouped(effects);
  return effects.map((effect) => ({
    label: makeLabel(effect, isGrouped), value: effect.value, low: effect.low ?? -Infinity, high: effect.high ?? Infinity,
    decided: isDecided(effect.reason), reason: effect.reason, remark: effect.remark,
  }));
}

/** The drawings of an answer's effects, those by group first: `[{id, title, effects}]`. */
export function makeEffectParts({ effects }) {
  const grouped = effects.filter(({ group }) => group !== null), overall = effects.filter(({ group }) => group === null);
  return [
    { id: "effects", title: "Effects against the control, by group", effects: grouped },
    { id: "averages", title: grouped.length ? "Average effects" : "Effects against the control", effects: overall },
  ].filter((part) => part.effects.length);
}

/** Effects over time as lines, those first that are decided now: `[{label, points: [{at, value, low, high}]}]`. */
export function makePaths({ people, effects }, currentEffects) {
  const isNow = ({ arm, group }) => currentEffects.some((effect) => effect.arm === arm && effect.group === group && isDecided(effect.reason));
  const isGrouped = areGrouped(effects), series = effects.map((path) => ({
    label: makeLabel(path, isGrouped), decided: isNow(path),
    points: people.map((at, n) => ({ at, value: path.values[n], low: path.lows[n] ?? -Infinity, high: path.highs[n] ?? Infinity })).filter(({ value }) => value !== null),
  }));
  return series.filter(({ points }) => points.length).sort((first, second) => second.decided - first.decided);
}

/** Rows in the order in which they are drawn: what is decided first, what nothing is known of last. */
export function rankRows(rows) {
  const rank = ({ decided, value }) => (decided ? 0 : value === null ? 2 : 1);
  return [...rows].sort((first, second) => rank(first) - rank(second));
}

/** The rows that are drawn at once, all that are decided among them, and those that somebody has to open. */
export function splitRows(rows, maxShown = DRAWN) {
  const ranked = rankRows(rows), nShown = Math.max(maxShown, ranked.filter(({ decided }) => decided).length);
  return ranked.length <= nShown + 5 ? [ranked, []] : [ranked.slice(0, nShown), ranked.slice(nShown)];
}

/** How many rows there are of each reason, in words; empty where no reasons are said. */
export function countReasons(rows) {
  const counts = new Map();
  for (const { reason } of rows) if (reason) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return [...counts].sort(([first], [second]) => isDecided(second) - isDecided(first)).map(([reason, number]) => `${reason}: ${formatNumber(number)}`).join("; ");
}

/** How an undecided row is marked: `ring`, or `diamond` where the reason is not that its interval holds 0. */
export const chooseMark = ({ decided, reason }) => (decided === true ? "square" : decided === null || decided === undefined ? "disc" :
  reason && reason !== HOLDS_ZERO ? "diamond" : "ring");

/** How many effects are decided, in a sentence; empty where there are none. */
export function describeDecided({ effects }) {
  if (!effects.length) return "";
  const [better, worse, earlier] = DECIDED.map((reason) => effects.filter((effect) => effect.reason === reason).length);
  if (!(better + worse + earlier)) return `None of ${formatCount(effects.length, "effect")} is decided.`;
  return `Of ${formatCount(effects.length, "effect")}, ${formatNumber(better)} ${better === 1 ? "is" : "are"} decided better and ${formatNumber(worse)} worse${earlier ? `, and ${formatNumber(earlier)} at an earlier look` : ""}.`;
}

/** What the figures rest on, in a sentence; empty where that is not known, or nothing. */
export function describeBasis({ people, rounds }) {
  const parts = [people && formatCount(people, "person", "people"), rounds && formatCount(rounds, "round")].filter(Boolean);
  return parts.length ? `The figures rest on ${parts.join(" in ")}.` : "";
}

const ENDINGS = {
  "its rule": "The rule that it declared ended it, and nobody is asked any more.",
  "its rows": "Its rows are all that there is of it: nobody is asked.",
  "its horizon": "Its horizon ended it: the planned people were asked, and nobody is asked any more.",
  "an operator": "An operator stopped it, and nobody is asked any more.",
};

/** Why nobody is asked any more, in a sentence; empty while people are. */
export function describeEnd({ stop_reason: reason, stage }) {
  if (stage === "failed") return "It failed, and nobody is asked any more.";
  if (reason) return ENDINGS[reason] ?? `What ended it: ${reason}.`;
  return stage === "ended" ? "Nobody is asked any more." : "";
}
