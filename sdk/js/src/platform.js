// @ts-check
/** All that a device takes from its platform: browsers and Node have the same names for it, where they have it. */

import { unsupported } from "./errors.js";

/** The part of WebCrypto that seals; pages that are not secure have none. @returns {SubtleCrypto} */
export function getSubtleCrypto() {
  const subtle = globalThis.crypto?.subtle;
  if (subtle) return subtle;
  throw unsupported("there is no WebCrypto here: serve the page over https, or from localhost", "crypto.subtle");
}

/** @template {Uint8Array<ArrayBuffer> | Uint32Array<ArrayBuffer> | BigUint64Array<ArrayBuffer>} T @param {T} into @returns {T} */
export function fillRandom(into) {
  if (!globalThis.crypto?.getRandomValues) throw unsupported("there are no secure random numbers here", "crypto.getRandomValues");
  const bytes = new Uint8Array(into.buffer);
  // A browser gives so many at once at most.
  for (let at = 0; at < bytes.length; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536));
  return into;
}

/** A source of uniform words of 64 bits. @typedef {(count: number) => bigint[]} Noise */

/** The operating system's. @type {Noise} */
export const secureNoise = (count) => [...fillRandom(new BigUint64Array(count))];

/** Fresh public coins; draw them before looking at the context. */
export const coins = () => fillRandom(new Uint32Array(1))[0];

/** A uniform number below a limit, by rejection. @param {number} limit */
export function drawBelow(limit) {
  const unbiasedLimit = 2 ** 32 - (2 ** 32 % limit);
  for (;;) {
    const word = coins();
    if (word < unbiasedLimit) return word % limit;
  }
}

/** Seconds since 1970, and of a clock that nobody sets. */
export const systemClock = { now: () => Date.now() / 1000, monotonic: () => performance.now() / 1000 };

/** @typedef {typeof systemClock} Clock */

/** @param {number} seconds @returns {Promise<void>} */
export const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

/**
 * What is missing here for a device to report; empty where nothing is. Ask before you join, and show the page without
 * an experiment where something is missing.
 * @returns {Promise<string[]>}
 */
export async function missing() {
  /** @type {string[]} */
  const subtle = [];
  if (!globalThis.crypto?.getRandomValues) subtle.push("secure random numbers (crypto.getRandomValues)");
  if (typeof globalThis.fetch !== "function") subtle.push("fetch");
  if (!globalThis.crypto?.subtle) return [...subtle, "WebCrypto (crypto.subtle): serve the page over https, or from localhost"];
  const has = (/** @type {string} */ name, /** @type {KeyUsage[]} */ usages) =>
    crypto.subtle.generateKey({ name }, false, usages).then(() => true, () => false);
  if (!(await has("X25519", ["deriveBits"]))) subtle.push("X25519 in WebCrypto: Chromium 133, Firefox 130, Safari 17 and Node 20 have it");
  if (!(await has("Ed25519", ["sign", "verify"]))) subtle.push("Ed25519 in WebCrypto: Chromium 137, Firefox 130, Safari 17 and Node 20 have it");
  return subtle;
}
