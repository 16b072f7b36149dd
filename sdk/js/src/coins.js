// @ts-check
/** Public coins: what 32 public random bits say at each key of a round. */

import { readTable } from "./arrays.js";
import { requireKnown } from "./errors.js";
import { isWhole } from "./numbers.js";

export const WORD = (1n << 64n) - 1n;
const GOLDEN = 0x9e3779b97f4a7c15n;
const CLASS = 0xa24baed4963ee407n;
/** The seed of coins, as a policy has it. @param {any} decoded @param {bigint} bits */
export function readSeed(decoded, bits = 63n) {
  requireKnown(typeof decoded === "bigint" || isWhole(decoded), "seed");
  const seed = BigInt(decoded);
  requireKnown(seed >= 0n && seed >> bits === 0n, "seed");
  return seed;
}

/** A share, of so many, that the upper bits of a word choose. @param {bigint} word @param {number} count */
export const scaleWord = (word, count) => Number(((word >> 32n) * BigInt(count)) >> 32n);

/** Whether thresholds rise and are at most 65,536. @param {number[]} row */
export const isRising = (row) => row.every((edge, i) => edge <= UNIT && (i === 0 || row[i - 1] <= edge));

/** Thresholds are in parts of this. */
export const UNIT = 65_536;

/** SplitMix64's finalizer. @param {bigint} word */
export function mix(word) {
  word = ((word ^ (word >> 30n)) * 0xbf58476d1ce4e5b9n) & WORD;
  word = ((word ^ (word >> 27n)) * 0x94d049bb133111ebn) & WORD;
  return word ^ (word >> 31n);
}

/** @param {bigint} hash */
export const sign = (hash) => (hash >> 63n ? -1 : 1);

/** @param {bigint} hash @param {number} buckets */
export const chooseBucket = (hash, buckets) => Number((((hash >> 24n) & 0xffffffffn) * BigInt(buckets)) >> 32n);

/** The public class, 0..classes-1, of the coins of a round with this seed. @param {number} slot @param {bigint} seed @param {number} classes */
export const chooseClass = (slot, seed, classes) => scaleWord(mix(mix((BigInt(slot) + seed) & WORD) ^ CLASS), classes);

/** The public plan of a round: its keys, and how coins spread over the groups of each. */
export class Layout {
  /** @param {bigint} seed @param {number[][]} thresholds one row a key @param {number} groups */
  constructor(seed, thresholds, groups) {
    this.seed = seed;
    this.thresholds = thresholds;
    this.groups = groups;
  }

  /** @param {any} decoded `{seed, thresholds}` as a policy has it @returns {Layout} */
  static read(decoded) {
    const { rows, columns } = readTable(decoded?.thresholds, "<u4");
    return new this(readSeed(decoded.seed, 64n), rows, columns + 1);
  }

  get keys() {
    return this.thresholds.length;
  }

  /** Whether thresholds rise and are at most 65,536. */
  get rises() {
    return this.thresholds.every(isRising);
  }

  /** @param {number} slot @param {number} key */
  hash(slot, key) {
    const state = mix(((BigInt(slot) + this.seed) * GOLDEN) & WORD);
    return mix(state ^ mix((BigInt(key + 1) * GOLDEN) & WORD));
  }

  /** @param {bigint} hash @param {number} key */
  group(hash, key) {
    const low = Number(hash & 0xffffn);
    return this.thresholds[key].filter((edge) => low >= edge).length;
  }

  /** Share of the coins in each group of a key, in parts of 65,536. @param {number} key */
  shares(key) {
    const edges = [0, ...this.thresholds[key], UNIT];
    return edges.slice(1).map((edge, i) => edge - edges[i]);
  }
}

/** A plan in which one hash of the coins decides the group at all keys. */
export class SlotLayout extends Layout {
  /** @param {number} slot @param {number} key */
  hash(slot, key) {
    const low = mix(((BigInt(slot) + this.seed) * GOLDEN) & WORD) & 0xffffn;
    return (super.hash(slot, key) & ~0xffffn) | low;
  }
}
