// Tables, with pages where they are long.

import { el, makeFactList, replace } from "./dom.mjs";
import { capitalize, formatCell, formatNumber, formatCount, spaceWords } from "./words.mjs";

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
export function makeTable(id, caption, columns, rows, { titled = false } = {}) {
  const kinds = resolveKinds(columns), names = columns.map((column) => column.name ?? column);
  const shownColumns = columns.map((_, place) => place).filter((place) => rows.some((row) => row[place] !== null && row[place] !== undefined));
  const numeric = shownColumns.map((place) => rows.every((row) => row[place] === null || typeof row[place] === "number"));
  const body = el("tbody"), place = el("p", { class: "pages" });
  let first = 0;

  function show() {
    const shownRows = rows.slice(first, first + ROWS);
    body.replaceChildren(...shownRows.map((row) => el("tr", {}, ...shownColumns.map((column, n) => {
      const value = row[column] instanceof Node ? row[column] : formatCell(row[column], kinds[column]);
      return n === 0 ? el("th", { scope: "row" }, value) : el("td", { class: numeric[n] ? "number" : null }, value);
    }))));
    if (rows.length <= ROWS) return;
    const turn = (name, to, able) => el("button", { id: `${id}-${name}`, type: "button", disabled: !able,
      onclick: () => { first = to; show(); } }, name === "earlier" ? "Previous" : "Next");
    replace(place, turn("earlier", first - ROWS, first > 0),
      el("span", { role: "status" }, `${formatNumber(first + 1)} to ${formatNumber(Math.min(first + ROWS, rows.length))} of ${formatCount(rows.length, "row")}`),
      turn("later", first + ROWS, first + ROWS < rows.length));
  }

  show();
  return el("div", { class: "scrolls", role: "region", tabindex: "0", "aria-label": caption },
    el("table", { id }, el("caption", { class: titled ? "unseen" : null }, caption),
      el("thead", {}, el("tr", {}, ...shownColumns.map((at, n) =>
        el("th", { scope: "col", class: numeric[n] ? "number" : null }, spaceWords(names[at]))))), body),
    rows.length > ROWS ? place : null);
}

/** What each column holds; the ends of an interval hold what the column before them does. */
function resolveKinds(columns) {
  const kinds = [];
  for (const { kind } of columns) kinds.push(kind === "low" || kind === "high" ? kinds.at(-1) : kind);
  return kinds;
}

/** Facts of an answer or a policy: those that are known. */
export const makeKnownFacts = (facts) => (facts.some(({ value }) => value !== null) ?
  makeFactList(facts.filter(({ value }) => value !== null).map(({ name, value, kind }) => [capitalize(name), formatCell(value, kind)])) : null);
