// @ts-check
/** Merkle trees as in RFC 9162, section 2.1. Sizes may exceed 32 bits, so they are halved by division. */

import { concatBytes, areEqualBytes } from "./bytes.js";
import { sha256 } from "./sealing.js";

/** @typedef {Uint8Array<ArrayBuffer>} Hash */

/** @param {Hash} entry */
export const leafHash = (entry) => sha256(concatBytes([0], entry));
/** @param {Hash} left @param {Hash} right */
const nodeHash = (left, right) => sha256(concatBytes([1], left, right));
const isOdd = (/** @type {number} */ index) => index % 2 === 1;
const half = (/** @type {number} */ index) => Math.floor(index / 2);

/** Whether a proof shows that a leaf is in a tree. @param {Hash} leaf @param {number} index @param {number} size
 * @param {Hash[]} path @param {Hash} root */
export async function provesInclusion(leaf, index, size, path, root) {
  if (!(index >= 0 && index < size)) return false;
  let [place, last, hash] = [index, size - 1, leaf];
  for (const part of path) {
    if (last === 0) return false;
    if (isOdd(place) || place === last) {
      hash = await nodeHash(part, hash);
      while (place > 0 && !isOdd(place)) [place, last] = [half(place), half(last)];
    } else {
      hash = await nodeHash(hash, part);
    }
    [place, last] = [half(place), half(last)];
  }
  return last === 0 && areEqualBytes(hash, root);
}

/** Whether a proof shows that one tree begins with another. @param {number} first @param {Hash} firstRoot
 * @param {number} second @param {Hash} secondRoot @param {Hash[]} path */
export async function provesConsistency(first, firstRoot, second, secondRoot, path) {
  if (!(first > 0 && first <= second)) return false;
  if (first === second) return path.length === 0 && areEqualBytes(firstRoot, secondRoot);
  let [place, last] = [first - 1, second - 1];
  while (isOdd(place)) [place, last] = [half(place), half(last)];
  const parts = place === 0 ? [firstRoot, ...path] : path;
  if (parts.length === 0) return false;
  let [before, after] = [parts[0], parts[0]];
  for (const part of parts.slice(1)) {
    if (last === 0) return false;
    if (isOdd(place) || place === last) {
      [before, after] = [await nodeHash(part, before), await nodeHash(part, after)];
      while (place > 0 && !isOdd(place)) [place, last] = [half(place), half(last)];
    } else {
      after = await nodeHash(after, part);
    }
    [place, last] = [half(place), half(last)];
  }
  return last === 0 && areEqualBytes(before, firstRoot) && areEqualBytes(after, secondRoot);
}

/** The complete subtrees over some leaves, the largest first. */
export class Peaks {
  /** @param {number} size @param {Hash[]} hashes as many as the size has bits */
  constructor(size, hashes) {
    this.size = size;
    this.hashes = hashes;
  }

  /** Whether a list of this size has so many subtrees. */
  get fits() {
    return [...this.size.toString(2)].filter((bit) => bit === "1").length === this.hashes.length;
  }

  /** @param {Hash} leaf */
  async add(leaf) {
    let hash = leaf;
    for (let place = this.size; isOdd(place); place = half(place)) {
      hash = await nodeHash(/** @type {Hash} */ (this.hashes.pop()), hash);
    }
    this.hashes.push(hash);
    this.size += 1;
  }

  async root() {
    const [last, ...others] = this.hashes.toReversed();
    let hash = last ?? (await sha256(new Uint8Array(0)));
    for (const left of others) hash = await nodeHash(left, hash);
    return hash;
  }
}
