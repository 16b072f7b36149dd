// Documents that have no type: an experiment's spec, and what a newer server sends. They become names and tables.

import { el, facts as pairs } from "./dom.mjs";
import { table } from "./tables.mjs";
import { capital, cell, spaced } from "./words.mjs";

const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const all = (items, test) => items.length > 0 && items.every(test);

/** A document as tables: the plain values first, then a table for each list or record of records. */
export function plainTables(document) {
  const plain = [], tables = [];
  for (const [key, value] of Object.entries(document ?? {})) {
    const rows = rowsOf(value);
    if (rows) tables.push({ title: key, ...rows });
    else plain.push([key, value]);
  }
  return { plain, tables };
}

function rowsOf(value) {
  if (Array.isArray(value) && all(value, isRecord)) return tabulated(value);
  if (isRecord(value) && all(Object.values(value), isRecord)) {
    return tabulated(Object.entries(value).map(([name, row]) => ({ name, ...row })));
  }
  const isFlat = isRecord(value) && Object.keys(value).length > 2 && !Object.values(value).some(isRecord);
  return isFlat ? { columns: ["name", "value"], rows: Object.entries(value) } : null;
}

function tabulated(records) {
  const columns = [...new Set(records.flatMap(Object.keys))];
  return { columns, rows: records.map((row) => columns.map((name) => row[name] ?? null)) };
}

/** A document, drawn: `id` is that of its tables. */
export function plainDocument(id, document) {
  const { plain, tables } = plainTables(document);
  return [pairs(plain.map(([name, one]) => [capital(spaced(name)), cell(one)])),
    tables.map(({ title, columns, rows }, n) => table(`${id}-${n}`, capital(spaced(title)), columns, rows))];
}

/** What is of a kind that this page does not know. */
export function unknown(shown, { id }) {
  return el("div", { class: "finding" }, el("p", { class: "hint" },
    "This page does not know how to draw what follows: it may be older than the server. Reload it; until then this is what the server says."),
  isRecord(shown) ? plainDocument(id, shown) : el("p", {}, cell(shown)));
}
