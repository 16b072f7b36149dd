// @ts-check
/** A person's values as columns in [0, 1]. Every value has a place: whether a device reports must not tell its person's. */

import { utf8 } from "./bytes.js";
import { WORD, mix, scaleWord as share } from "./coins.js";
import { invalid, requireKnown, refused } from "./errors.js";
import { isObject } from "./inputs.js";
import { clipNumber, isNumber, isWhole } from "./numbers.js";

/**
 * Columns that say one thing: of a number `codes` is empty; `flags`: 1 says that the number before is missing; `cyclic`: 1 is
 * the number that 0 is.
 * @typedef {{columns: number, codes: number[], flags: boolean, cyclic?: boolean}} Block
 */

/**
 * `wants` says which values the spec has a place for, and `fits` whether this is one; others count as missing.
 * @typedef {{columns: number, blocks: Block[], wants: string, fits: (value: any) => boolean, encode: (value: any) => number[]}} Feature
 */

/** @type {Block} */
const NUMBER = { columns: 1, codes: [], flags: false };
/** @type {Block} */
const FLAG = { columns: 1, codes: [0, 1], flags: true };

/** Numbers that come round are clipped to this before. */
const BOUND_MAX = 1e15;
/** @type {any[]} */
const BOOLEANS = [false, true, 0, 1];
/** Features of an arm, at most. */
const OF_ARMS_MAX = 1 << 14;

/** @param {any} value */
const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

/**
 * The features of a spec, in order.
 * @param {Record<string, any>} tables `context.features` of the spec
 * @returns {Map<string, Feature>}
 */
export function makeFeatures(tables) {
  return new Map(
    Object.entries(tables).map(([name, table]) => {
      // JavaScript puts such keys first, whatever their order in the spec.
      if (/^(0|[1-9][0-9]*)$/.test(name)) throw refused("this client cannot keep the order of such names", name);
      return [name, makeFeature(table)];
    }),
  );
}

/**
 * Numbers that every arm has, within the same bounds: "x1 of a", and so on.
 * @param {{features: number | string[], low?: number, high?: number}} told the section `context` @param {string[]} arms
 * @returns {Map<string, Feature>}
 */
export function makeArmFeatures({ features: table, low = -1, high = 1 }, arms) {
  const names = Array.isArray(table) ? table : Array.from({ length: Math.min(table, OF_ARMS_MAX + 1) }, (_, i) => `x${i + 1}`);
  const good = names.length >= 1 && names.length <= OF_ARMS_MAX && names.every((name) => typeof name === "string");
  requireKnown(good && arms.length, "context.features");
  const number = makeFeature({ low, high });
  return new Map(arms.flatMap((arm) => names.map((name) => [`${name} of ${arm}`, number])));
}

/** @param {any} table @returns {Feature} */
function makeFeature(table) {
  const missing = table.missing === true;
  if (Array.isArray(table.levels)) return table.ordered ? makeOrdinal(table.levels, missing) : makeCategorical(table.levels, missing);
  if (table.boolean === true) return makeBoolean(missing);
  if (isWhole(table.hash_buckets, 2)) return makeHashed(table.hash_buckets, missing);
  if (Array.isArray(table.quantiles)) return makeScaled(missing, "a number", (value) => (isNumber(value) ? rankValue(table.quantiles, value) : null));
  const { low, high, cyclic = false } = table;
  requireKnown(isNumber(low) && isNumber(high) && low < high && typeof cyclic === "boolean", "context.features");
  if (!cyclic) return makeScaled(missing, "a number", (value) => (isNumber(value) ? (clipNumber(value, low, high) - low) / (high - low) : null));
  const position = (/** @type {number} */ value) => (clipNumber(value, -BOUND_MAX, BOUND_MAX) - low) / (high - low);
  const scaledFeature = makeScaled(missing, "a number", (value) => (isNumber(value) ? position(value) - Math.floor(position(value)) : null));
  return { ...scaledFeature, blocks: [{ ...NUMBER, cyclic }, ...scaledFeature.blocks.slice(1)] };
}

/** A number in a column, and a flag beside it where it may be missing. @param {boolean} missing @param {string} wants
 * @param {(value: any) => number | null} place @returns {Feature} */
function makeScaled(missing, wants, place) {
  return {
    columns: missing ? 2 : 1,
    blocks: missing ? [NUMBER, FLAG] : [NUMBER],
    wants,
    fits: makeFitCheck(missing, place),
    encode: (value) => {
      const scaledFeature = isMissing(value) ? null : place(value);
      return missing ? [scaledFeature ?? 0.5, scaledFeature === null ? 1 : 0] : [scaledFeature ?? 0.5];
    },
  };
}

/** Linear between cut points; where several are equal, the middle of their ranks. @param {number[]} cuts @param {number} value */
function rankValue(cuts, value) {
  const last = cuts.length - 1;
  const position = clipNumber(value, cuts[0], cuts[last]);
  const [first, end] = [cuts.indexOf(position), cuts.lastIndexOf(position)];
  if (first >= 0) return (first / last + end / last) / 2;
  const above = cuts.findIndex((cut) => cut > position);
  const [low, high] = [(above - 1) / last, above / last];
  return low + ((position - cuts[above - 1]) / (cuts[above] - cuts[above - 1])) * (high - low);
}

/** The place of a value among levels; null: it is of another kind; -1: it is not listed.
 * @param {any[]} levels @param {any} value */
function findLevel(levels, value) {
  const kinds = new Set(levels.map((level) => typeof level));
  return (typeof value === "string" || isNumber(value)) && kinds.has(typeof value) ? levels.indexOf(value) : null;
}

/** @param {any[]} levels @param {boolean} missing @returns {Feature} */
function makeOrdinal(levels, missing) {
  return makeScaled(missing, "one of its levels", (value) => {
    const place = findLevel(levels, value);
    return place === null || place < 0 ? null : (place + 0.5) / levels.length;
  });
}

/** @param {any[]} levels @param {boolean} missing @returns {Feature} */
function makeCategorical(levels, missing) {
  const features = levels.length + (missing ? 1 : 0);
  const position = levels.indexOf("other");
  // One more level takes no more columns, unless the codes are all in use.
  const full = position < 0 && features > 1 && (features & (features - 1)) === 0;
  const count = position >= 0 || full ? features : features + 1;
  const others = position >= 0 ? position : full ? levels.length - 1 : features;
  return makeCoded(missing, count, missing ? levels.length : others, "text or a whole number, as its levels are", (value) => {
    const place = findLevel(levels, value);
    return place === null || place >= 0 ? place : others;
  });
}

/** More levels than can be listed, dealt to buckets by a public hash of their names. @param {number} buckets @param {boolean} missing @returns {Feature} */
function makeHashed(buckets, missing) {
  // Whoever has no value where none may be missing is in the bucket of no text.
  const gap = missing ? buckets : hashToBucket("", buckets);
  return makeCoded(missing, buckets + (missing ? 1 : 0), gap, "text or a whole number", (value) =>
    typeof value === "string" || isWhole(value) ? hashToBucket(String(value), buckets) : null,
  );
}

/** The bucket of a text: 64-bit FNV-1a of its bytes in UTF-8, mixed, of which the upper bits decide. @param {string} text @param {number} buckets */
export function hashToBucket(text, buckets) {
  let word = 0xcbf29ce484222325n;
  for (const byte of utf8(text)) word = ((word ^ BigInt(byte)) * 0x100000001b3n) & WORD;
  return share(mix(word), buckets);
}

/** @param {boolean} missing @returns {Feature} */
function makeBoolean(missing) {
  const gap = missing ? 2 : 0;
  return makeCoded(missing, missing ? 3 : 2, gap, "true or false", (value) => (BOOLEANS.includes(value) ? Number(value) : null));
}

/** Levels as the bits of codes that are spread evenly, the highest bit first. @param {boolean} missing @param {number} count
 * @param {number} gap the level of who has no value @param {string} wants @param {(value: any) => number | null} place @returns {Feature} */
function makeCoded(missing, count, gap, wants, place) {
  const levels = Math.max(2, count);
  const columns = Math.max(1, Math.ceil(Math.log2(levels)));
  const codes = Array.from({ length: levels }, (_, feature) => Math.floor((feature * 2 ** columns) / levels));
  return {
    columns,
    blocks: [{ columns, codes, flags: false }],
    wants,
    fits: makeFitCheck(missing, place),
    encode: (value) => {
      const code = codes[(isMissing(value) ? null : place(value)) ?? gap];
      return Array.from({ length: columns }, (_, i) => (code >> (columns - 1 - i)) & 1);
    },
  };
}

/** Whether the spec has a place for a value. @param {boolean} missing @param {(value: any) => number | null} place @returns {(value: any) => boolean} */
const makeFitCheck = (missing, place) => (value) => (isMissing(value) ? missing : place(value) !== null);

/** What spec has no place for, in words that name features and no values. @param {Map<string, Feature>} features @param {Record<string, any>} values */
export const listUnfit = (features, values) =>
  [...features].flatMap(([name, feature]) => (feature.fits(values[name]) ? [] : [`${name}: should be ${feature.wants}; it counts as missing`]));

/** One person's columns. @param {Map<string, Feature>} features @param {Record<string, any>} values */
export function encodeColumns(features, values) {
  if (!isObject(values)) throw invalid("give an object with a value for each feature", "context");
  for (const name of Object.keys(values)) {
    if (!features.has(name)) throw invalid(`the experiment has no such feature, but ${[...features.keys()].join(", ") || "none"}`, name);
  }
  return [...features].flatMap(([name, feature]) => {
    if (!Object.hasOwn(values, name)) throw invalid("missing: give a value, or null", name);
    return feature.encode(values[name]);
  });
}

/** A reward scaled to [0, 1]; one that does not fit counts as no outcome, so that every outcome is reported.
 * @param {{low: number, high: number, default?: number | null}} bounds @param {any} table */
export const scaleReward = (bounds, table) => clipNumber((unscaleReward(bounds, table) - bounds.low) / (bounds.high - bounds.low), 0, 1);

/** A reward in its own unit, or what it is without an outcome. @param {{low: number, high: number, default?: number | null}} bounds @param {any} table */
export function unscaleReward(bounds, table) {
  const fallback = bounds.default ?? clipNumber(0, bounds.low, bounds.high);
  return typeof table === "boolean" ? Number(table) : isNumber(table) ? table : fallback;
}
