// What a result decides, and why: the headline and the rows of its drawings, as the server says them. Pure: no page is needed.

import { count, many } from "./words.mjs";

export const DRAWN = 40;
const HOLDS_ZERO = "its interval holds 0", DECIDED = ["decided better", "decided worse"];

/** Whether a reason is that something is decided. */
export const isDecided = (reason) => DECIDED.includes(reason);

/** The drawings of a result's effects, those by group first: `[{id, title, rows}]`. */
export function effectParts({ effects = [] }) {
  const newest = Math.max(0, ...effects.map(({ people }) => people ?? 0));
  const since = (people) => (people && people < newest ? ` when ${many(people, "person", "people")} had reported` : "");
  const rows = effects.map(({ option, group, value, low, high, reason, people }) => ({
    label: group === null ? option : `${group} · ${option}`, value, low: low ?? -Infinity, high: high ?? Infinity,
    decided: isDecided(reason), reason, since: since(people), group,
  }));
  const grouped = rows.filter(({ group }) => group !== null), whole = rows.filter(({ group }) => group === null);
  return [
    { id: "effects", title: "Effects against the control, by group", rows: grouped },
    { id: "averages", title: grouped.length ? "Average effects" : "Effects against the control", rows: whole },
  ].filter((part) => part.rows.length);
}

/** Whether a table of a result says what `effects` say. */
export const repeatsEffects = ({ effects = [] }, { title, columns }) =>
  effects.length > 0 && !title.startsWith("guardrail") && ["arm", "effect", "low", "high", "decided"].every((one) => columns.includes(one));

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

const OVER = new Set(["stopped", "finished", "failed"]);

/** What a result says first: `[before, option, after]`. */
export function headline({ recommended, ground }, status) {
  if (recommended === null || recommended === undefined) return [`It recommends no single option${OVER.has(status) ? "." : " so far."}`, "", ""];
  if (!ground) return ["It names ", recommended, ". How sure that is, the result does not say."];
  if (ground.startsWith("decided")) return [OVER.has(status) ? "It recommends " : "So far it recommends ", recommended, `: ${ground}.`];
  if (ground === "everybody gets it from now on") return ["It recommends ", recommended, `: ${ground}.`];
  return ["It decided nothing that recommends a single option. ", recommended, ` is ${ground === "too few people to say" ? "given most, and too few people have reported to say more" : ground}.`];
}

/** How many effects are decided, in a sentence; empty where there are none. */
export function decidedInWords({ effects = [] }) {
  if (!effects.length) return "";
  const better = effects.filter(({ reason }) => reason === DECIDED[0]).length, worse = effects.filter(({ reason }) => reason === DECIDED[1]).length;
  return better + worse ? `Of ${many(effects.length, "effect")}, ${count(better)} ${better === 1 ? "is" : "are"} decided better and ${count(worse)} worse.` : `None of ${many(effects.length, "effect")} is decided.`;
}

/** Why nobody is asked any more, in a sentence; empty while people are. */
export function endedInWords({ ended, stopped }, status) {
  if (ended === "its rule") return "The rule that it declared ended it, and nobody is asked any more.";
  if (ended === "its horizon") return "Its horizon ended it: the planned people were asked, and nobody is asked any more.";
  if (status === "stopped") return "An operator stopped it, and nobody is asked any more.";
  if (status === "failed") return "It failed, and nobody is asked any more.";
  return stopped ? "Nobody is asked any more." : "";
}
