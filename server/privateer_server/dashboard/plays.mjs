// How often everybody plays each of several actions, and which were left in every version.

import { el, makeFactList, makeDetails, replace, svg } from "./dom.mjs";
import { picture } from "./picture.mjs";
import { makeTable } from "./tables.mjs";
import { formatNumber, formatCount, shorten } from "./words.mjs";

const ROWS = 40, ROW = 16, NAMES = 56;
const compareNames = new Intl.Collator("en", { numeric: true }).compare;

/** What is played now, and once all versions are there, what was left in each. */
export function drawPlays(shows, { width, versions }) {
  const { plays: times, active, people, draw } = shows, place = el("div");
  versions?.().then((policies) => replace(place, drawRemaining(policies, width)), () => replace(place, el("p", { class: "hint" }, "Earlier versions cannot be fetched now.")));
  return [el("p", {}, people ? `Everybody who is asked plays each of these actions so often. ${formatCount(people, "person's", "people's")} reports are wanted.` : "Everybody plays this; nobody's report is wanted."),
    makeTable("plays", "How often each action is played", ["action", "times"], Object.entries(times)),
    makeFactList([["Actions that may still be the best", formatNumber(active.length)], ...(people ? [["Public seed that says who is asked", String(draw.seed)],
      ["Places in its order", `${formatNumber(draw.start)} to ${formatNumber(draw.start + draw.places)}`]] : [])]),
    place];
}

/** By version: which actions are left, and which of them are played; those that were left longest come first. */
function drawRemaining(versions, width) {
  const names = [...new Set(versions.flatMap(({ active }) => active))].sort(compareNames);
  const last = (name) => versions.findLastIndex(({ active }) => active.includes(name)) + 1;
  const rows = [...names].sort((first, second) => last(second) - last(first) || compareNames(first, second)).slice(0, ROWS);
  const each = Math.min(36, (width - NAMES) / versions.length), height = rows.length * ROW + 20;
  const cells = (name, n) => versions.map(({ active, plays: times }, at) => (active.includes(name) ?
    svg("rect", { class: times[name] ? "played" : "kept", x: NAMES + at * each + 1, y: n * ROW + 1, width: Math.max(1, each - 2), height: ROW - 2 }) : null));
  const label = `Of ${names.length}, ${versions.at(-1).active.length} left in version ${versions.length}`;
  return el("div", {}, el("h3", {}, "What was left in every version"),
    picture(label, width, height, rows.map((name, n) => [svg("text", { class: "tick", x: NAMES - 8, y: n * ROW + 12, "text-anchor": "end" }, shorten(name, 7)), cells(name, n)]),
      svg("text", { class: "tick", x: NAMES, y: height - 4 }, "version 1"),
      svg("text", { class: "tick", x: NAMES + versions.length * each, y: height - 4, "text-anchor": "end" }, String(versions.length))),
    el("p", { class: "hint" }, `Strong: it was played. Faint: it was left, and not played.${names.length > ROWS ? ` The last ${ROWS} of ${names.length}.` : ""}`),
    makeDetails("kept-more", "As a table", makeTable("kept", "The last version in which each was left", ["action", "left until version", "played"],
      names.map((name) => [name, last(name), formatCount(versions.filter(({ plays: times }) => times[name]).length, "version")]))));
}
