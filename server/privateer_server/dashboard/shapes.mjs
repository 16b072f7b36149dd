// Finds out what a published document can be drawn as, by its shape alone: no algorithm is asked for its name.
// Pure: no page is needed.

const TIED = 1e-6;
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const all = (items, test) => items.length > 0 && items.every(test);

/**
 * What a policy is: `bins` (boxes with shares of arms), `groups` (shares of arms by group of people), `shares` (one
 * share for each arm), `numbers` (columns of numbers by name), `kept` (a list of what is left), or `other`.
 */
export function policyShape(policy) {
  if (Array.isArray(policy.bins) && all(policy.bins, isBox)) return "bins";
  const groups = groupsOf(policy);
  if (groups) return "groups";
  if (isRecord(policy.arms) && areShares(policy.arms)) return "shares";
  if (isRecord(policy.arms) && all(Object.values(policy.arms), isRecord)) return "numbers";
  return Array.isArray(policy.active) && all(policy.active, Number.isInteger) ? "kept" : "other";
}

const isBox = (row) => isRecord(row) && all(row.lower ?? [], isNumber) && row.upper?.length === row.lower.length &&
  row.upper.every(isNumber) && isRecord(row.arms) && all(Object.values(row.arms), isNumber);

function areShares(arms) {
  const shares = Object.values(arms);
  return all(shares, (one) => isNumber(one) && one >= 0 && one <= 1) &&
    Math.abs(shares.reduce((sum, one) => sum + one, 0) - 1) < 0.02;
}

/** Shares of arms by group of people: `[{name, arms}]`; null if the policy has none. */
export function groupsOf(policy) {
  for (const rows of Object.values(policy)) {
    if (!Array.isArray(rows) || !all(rows, (row) => isRecord(row) && isRecord(row.arms) && areShares(row.arms))) continue;
    if (rows.some((row) => row.lower)) continue;
    return rows.map(({ arms, ...about }) => ({ name: Object.values(about).join(", ") || "everybody", arms }));
  }
  return null;
}

/** All arms that a document names, in the order of the spec, those that it does not name after them. */
export function armsOf(spec, policy) {
  const named = new Set(spec?.experiment?.arms ?? []);
  const rows = [policy, ...(policy.bins ?? []), ...(groupsOf(policy) ?? [])];
  for (const row of rows) for (const arm of Object.keys(isRecord(row.arms) ? row.arms : {})) named.add(arm);
  return [...named];
}

/** The arm with the largest share, null where several have it; and whether others are tried as well. */
export function leading(arms) {
  const most = Math.max(...Object.values(arms)), first = Object.keys(arms).filter((arm) => arms[arm] > most - TIED);
  return { arm: first.length === 1 ? first[0] : null, several: Object.values(arms).filter((share) => share > 0).length > 1 };
}

/** What a table of a result is: `time`, `intervals`, `facts` or `plain`. */
export function tableShape({ columns }) {
  const has = (name) => columns.includes(name);
  const value = has("low") && has("high") ? columns[columns.indexOf("low") - 1] : undefined;
  if (value !== undefined) return has("people") && columns.indexOf("people") < columns.indexOf(value) ? "time" : "intervals";
  return columns.length === 2 ? "facts" : "plain";
}

/** Estimates of a table that has intervals: `{label, value, low, high, decided, people}`, those without are left out. */
export function estimatesOf({ columns, rows }) {
  const low = columns.indexOf("low"), high = columns.indexOf("high"), value = low - 1;
  const decided = columns.indexOf("decided"), people = columns.indexOf("people"), note = columns.indexOf("note");
  const names = columns.map((_, place) => place)
    .filter((place) => place < value && place !== people && rows.some((row) => typeof row[place] === "string"));
  return rows.filter((row) => isNumber(row[value])).map((row) => ({
    label: names.map((place) => row[place]).filter((one) => one !== null).join(" · ") || columns[value],
    value: row[value], low: ended(row[low], -Infinity), high: ended(row[high], Infinity),
    decided: decided < 0 ? null : Boolean(row[decided]), ...(note < 0 ? {} : { reason: row[note] ?? "" }), people: people < 0 ? null : row[people],
  }));
}

const ended = (value, otherwise) => (isNumber(value) ? value : otherwise);

/** Whether what a table's intervals are around is a difference, so that 0 means none. */
export const isDifference = ({ columns }) => ["effect", "gain", "difference"].includes(columns[columns.indexOf("low") - 1]);

/** Estimates over time by what they are about: `[{label, points: [{people, value, low, high}]}]`. */
export function seriesOf(table) {
  const found = new Map();
  for (const { label, people, value, low, high } of estimatesOf(table)) {
    if (!found.has(label)) found.set(label, []);
    found.get(label).push({ people, value, low, high });
  }
  return [...found].map(([label, points]) => ({ label, points }));
}

/** Estimates with what is around them, as a state publishes them of arms: null where there is no error beside. */
export function stateEstimates(arms) {
  if (!isRecord(arms)) return null;
  const found = Object.entries(arms).filter(([, one]) => isRecord(one) && isNumber(one.mean)).map(([label, one]) => {
    const reach = isNumber(one.standard_error) ? 1.96 * one.standard_error : isNumber(one.radius) ? one.radius : null;
    return reach === null ? null : { label, value: one.mean, low: one.mean - reach, high: one.mean + reach, decided: null };
  }).filter(Boolean);
  return found.length ? found : null;
}

/** Estimates of mean rewards within the bounds of rewards: those beyond are at the bound, and say so (`bounded`). */
export function inBounds(rows, { low, high } = {}) {
  if (!rows || !isNumber(low) || !isNumber(high)) return rows;
  const within = (value) => Math.min(high, Math.max(low, value));
  return rows.map((row) => ({ ...row, value: within(row.value), low: within(row.low), high: within(row.high), bounded: row.value < low || row.value > high }));
}

/** The bin of a state that holds a whole bin of a policy; null if none does. */
export function stateBin(state, { lower, upper }) {
  const rows = state?.bins;
  if (!Array.isArray(rows)) return null;
  return rows.find((row) => row.lower?.length === lower.length &&
    row.lower.every((low, j) => low <= lower[j] && row.upper[j] >= upper[j])) ?? null;
}

/** Rows of a state with an estimate and a width of each: `{label, value, low, high}`; null if it has none. */
export function widthsOf(state) {
  for (const [key, rows] of Object.entries(state ?? {})) {
    if (!Array.isArray(rows) || !all(rows, (row) => isRecord(row) && isNumber(row.estimate) && "width" in row)) continue;
    const named = (row) => Object.entries(row).find(([name]) => name !== "estimate" && name !== "width");
    const some = rows.filter((row) => isNumber(row.width));
    return { key, rows: some.map((row) => ({
      label: (named(row) ?? ["one"]).join(" "), value: row.estimate, low: row.estimate - row.width,
      high: row.estimate + row.width, decided: null,
    })) };
  }
  return null;
}

/** Figures that a history has for its versions: `[{name, points: [{version, value}]}]`. */
export function figuresOf(rounds) {
  const found = new Map();
  for (const { version, figures } of rounds) {
    for (const [name, value] of Object.entries(figures ?? {})) {
      if (!isNumber(value)) continue;
      if (!found.has(name)) found.set(name, []);
      found.get(name).push({ version, value });
    }
  }
  return [...found].map(([name, points]) => ({ name, points }));
}

/** A document of any shape as tables: the plain values first, then a table for each list or record of records. */
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
  if (isRecord(value) && Object.keys(value).length > 2 && Object.values(value).every((one) => !isRecord(one))) return { columns: ["name", "value"], rows: Object.entries(value) };
  return null;
}

function tabulated(records) {
  const columns = [...new Set(records.flatMap(Object.keys))];
  return { columns, rows: records.map((row) => columns.map((name) => row[name] ?? null)) };
}
