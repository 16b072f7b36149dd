// Tables, with pages where they are long.

import { el, facts as pairs, replace } from "./dom.mjs";
import { capital, cell, count, many, spaced } from "./words.mjs";

const ROWS = 25;

/**
 * A table. Long ones have pages.
 *
 * @param {string} id of the table on the page
 * @param {string} caption what it is about
 * @param {(string|{name: string, kind: string})[]} columns names, and what they hold where that is said
 * @param {Array[]} rows a cell for each column: a value, or an element
 * @param {boolean} titled whether a heading above says what the caption says
 */
export function table(id, caption, columns, rows, { titled = false } = {}) {
  const kinds = kindsOf(columns), names = columns.map((one) => one.name ?? one);
  const kept = columns.map((_, place) => place).filter((place) => rows.some((row) => row[place] !== null && row[place] !== undefined));
  const numeric = kept.map((place) => rows.every((row) => row[place] === null || typeof row[place] === "number"));
  const body = el("tbody"), place = el("p", { class: "pages" });
  let first = 0;

  function show() {
    const shown = rows.slice(first, first + ROWS);
    body.replaceChildren(...shown.map((row) => el("tr", {}, ...kept.map((at, n) => {
      const value = row[at] instanceof Node ? row[at] : cell(row[at], kinds[at]);
      return n === 0 ? el("th", { scope: "row" }, value) : el("td", { class: numeric[n] ? "number" : null }, value);
    }))));
    if (rows.length <= ROWS) return;
    const turn = (name, to, able) => el("button", { id: `${id}-${name}`, type: "button", disabled: !able,
      onclick: () => { first = to; show(); } }, name === "earlier" ? "Previous" : "Next");
    replace(place, turn("earlier", first - ROWS, first > 0),
      el("span", { role: "status" }, `${count(first + 1)} to ${count(Math.min(first + ROWS, rows.length))} of ${many(rows.length, "row")}`),
      turn("later", first + ROWS, first + ROWS < rows.length));
  }

  show();
  return el("div", { class: "scrolls", role: "region", tabindex: "0", "aria-label": caption },
    el("table", { id }, el("caption", { class: titled ? "unseen" : null }, caption),
      el("thead", {}, el("tr", {}, ...kept.map((at, n) =>
        el("th", { scope: "col", class: numeric[n] ? "number" : null }, spaced(names[at]))))), body),
    rows.length > ROWS ? place : null);
}

/** What each column holds; the ends of an interval hold what the column before them does. */
function kindsOf(columns) {
  const found = [];
  for (const { kind } of columns) found.push(kind === "low" || kind === "high" ? found.at(-1) : kind);
  return found;
}

/** Facts of an answer or a policy: those that are known. */
export const factPairs = (facts) => (facts.some(({ value }) => value !== null) ?
  pairs(facts.filter(({ value }) => value !== null).map(({ name, value, kind }) => [capital(name), cell(value, kind)])) : null);
