// What a policy shows where there are no bins: shares by group of people, coefficients of options, a point of a set.

import { drawShareBar } from "./charts.mjs";
import { el, makeFactList, makeDetails, svg } from "./dom.mjs";
import { patterns, swatch } from "./picture.mjs";
import { makeTable } from "./tables.mjs";
import { capitalize, formatNumber, formatFigure, armLetter, formatCount, describeShares } from "./words.mjs";

const BARS = 60, EVERYBODY = "everybody";

/** All options: those of the spec in its order, after them what else is named, e.g. in an earlier version. */
export const listOptions = (options, named) => [...new Set([...options, ...named.flatMap(Object.keys)])];

/** Names of groups are those of the spec, but for the one that has all people. */
const makeGroupTitle = (name) => (name === EVERYBODY ? capitalize(name) : name);

/** A bar for each group of people. */
export function groups({ groups: rows }, { options, width }) {
  const order = listOptions(options, rows.map(({ arms }) => arms)), letters = order.map((_, place) => armLetter(place));
  const bars = (shown) => shown.map(({ name, arms }) => el("div", { class: "group" }, el("h3", {}, makeGroupTitle(name)),
    drawShareBar(`${makeGroupTitle(name)}: ${describeShares(arms)}`, arms, order, letters, width)));
  return [el("ul", { class: "legend", "aria-label": "Arms" }, order.map((arm, place) => el("li", {}, swatch(place), ` ${letters[place]} = ${arm}`))),
    svg("svg", { width: 0, height: 0, class: "defs", "aria-hidden": "true" }, patterns()),
    ...bars(rows.slice(0, BARS)),
    rows.length > BARS ? makeDetails("shares-others", `${formatNumber(rows.length - BARS)} more of ${formatCount(rows.length, "group")}`, () => bars(rows.slice(BARS))) : null,
    makeDetails("shares-more", "As a table", makeTable("shares", "The share of people who get each arm",
      [{ name: "people", kind: "words" }, ...order.map((name) => ({ name, kind: "share" }))], rows.map(({ name, arms }) => [name, ...order.map((arm) => arms[arm] ?? 0)])))];
}

/** What each term adds, for all options alike and for each of them. */
export function coefficients({ link, unit, shared, arms }) {
  const terms = [...new Set(Object.values(arms).flatMap(Object.keys))], alike = Object.entries(shared);
  return [el("p", {}, `What each arm is expected to bring, by what is known of a person. Each device picks its arm from these numbers. Their unit: ${unit}.`),
    link === "identity" ? null : el("p", {}, `A sum of them becomes a mean reward by the ${link} function.`),
    makeTable("numbers", "Numbers of each arm", ["name", ...Object.keys(arms)], terms.map((name) => [name, ...Object.values(arms).map((coefficientByTerm) => coefficientByTerm[name] ?? null)])),
    alike.length ? makeTable("shared-numbers", "Numbers that all arms share", ["name", "all arms"], alike) : null];
}

/** A point: that of a policy with how far from it people's points are, that of an answer with the mean of all centres. */
export function point({ centre, average, nearest, farthest }, { id }) {
  const distances = [["Nearest to the centre", nearest], ["Farthest from it", farthest]].filter(([, value]) => value !== null);
  return el("div", { class: "finding" }, el("h3", {}, average ? "The centre, and the mean of all centres so far" : "The centre"),
    distances.length ? makeFactList(distances.map(([name, value]) => [name, formatFigure(value)])) : null,
    makeTable(`${id}-point`, "Coordinates of the centre", ["coordinate", "centre", "average"], Object.entries(centre).map(([name, value]) => [name, value, average?.[name] ?? null]), { titled: true }));
}
