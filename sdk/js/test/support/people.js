// @ts-check
/** People that any language can make: contexts, coins and outcomes come from a counter (tests/documents/families.py). */

import { mix } from "../../src/coins.js";

const MASK = (1n << 64n) - 1n;
const GOLDEN = 0x9e3779b97f4a7c15n;

/** 64 bits of a person. @param {number} seed @param {number} person @param {number} stream */
export const word = (seed, person, stream) =>
  mix(mix((BigInt(person + seed) * GOLDEN) & MASK) ^ mix((BigInt(stream + 1) * GOLDEN) & MASK));

/** @param {bigint} bits */
export const share = (bits) => Number(bits >> 11n) * 2 ** -53;

/** A value of a feature, sometimes none or one that the spec has no place for. @param {any} table @param {bigint} bits */
export function value(table, bits) {
  const kind = Number(bits % 8n);
  const place = (/** @type {number} */ count) => Number((bits >> 3n) % BigInt(count));
  if (kind === 0) return null;
  if (table.hash_buckets) return kind > 2 ? `No. ${place(1000)}` : place(1000);
  if (table.levels) return kind === 1 ? "elsewhere" : table.levels[place(table.levels.length)];
  if (table.boolean) return place(2) === 1;
  const [low, high] = table.quantiles ? [table.quantiles[0], table.quantiles.at(-1)] : [table.low, table.high];
  if (kind <= 2) return kind === 1 ? low : high;
  if (kind === 3 && table.quantiles) return table.quantiles[place(table.quantiles.length)];
  return low + (high - low) * (share(bits) * 1.2 - 0.1);
}
