// Documents that have no type: an experiment's spec, and what a newer server sends. They become names and tables.

import { el, makeFactList } from "./dom.mjs";
import { makeTable } from "./tables.mjs";
import { capitalize, formatCell, spaceWords } from "./words.mjs";

const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const holdsForAll = (items, test) => items.length > 0 && items.every(test);

/** A document as tables: the plain values first, then a table for each list or record of records. */
export function splitTables(document) {
  const plain = [], tables = [];
  for (const [key, value] of Object.entries(document ?? {})) {
    const rows = findRows(value);
    if (rows) tables.push({ title: key, ...rows });
    else plain.push([key, value]);
  }
  return { plain, tables };
}

function findRows(value) {
  if (Array.isArray(value) && holdsForAll(value, isRecord)) return tabulate(value);
  if (isRecord(value) && holdsForAll(Object.values(value), isRecord)) {
    return tabulate(Object.entries(value).map(([name, row]) => ({ name, ...row })));
  }
  const isFlat = isRecord(value) && Object.keys(value).length > 2 && !Object.values(value).some(isRecord);
  return isFlat ? { columns: ["name", "value"], rows: Object.entries(value) } : null;
}

function tabulate(records) {
  const columns = [...new Set(records.flatMap(Object.keys))];
  return { columns, rows: records.map((row) => columns.map((name) => row[name] ?? null)) };
}

/** A document, drawn: `id` is that of its tables. */
export function drawDocument(id, document) {
  const { plain, tables } = splitTables(document);
  return [makeFactList(plain.map(([name, value]) => [capitalize(spaceWords(name)), formatCell(value)])),
    tables.map(({ title, columns, rows }, n) => makeTable(`${id}-${n}`, capitalize(spaceWords(title)), columns, rows))];
}

/** What is of a kind that this page does not know. */
export function drawUnknown(document, { id }) {
  return el("div", { class: "finding" }, el("p", { class: "hint" },
    "This page does not know how to draw what follows: it may be older than the server. Reload it; until then this is what the server says."),
  isRecord(document) ? drawDocument(id, document) : el("p", {}, formatCell(document)));
}
