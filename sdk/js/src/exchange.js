// @ts-check
/** HTTP with an end: every answer is bounded in bytes and in time, whatever the server does. */

import { concatBytes, json } from "./bytes.js";
import { invalid, unavailable } from "./errors.js";

const BYTES_MAX = 16 << 20;
const PROBLEM_MAX = 64 << 10;
export const MSGPACK = "application/msgpack";

/** @typedef {{status: number, headers: Headers, body: Uint8Array<ArrayBuffer>}} Answer */

/** Addresses of the requests that are not answered yet. @type {Set<URL>} */
const unanswered = new Set();

/**
 * Ask once.
 * @param {string} url @param {RequestInit} request @param {number} seconds @param {number} [maxBytes] bytes of a success
 * @returns {Promise<Answer>}
 */
export async function ask(url, request, seconds, maxBytes = BYTES_MAX) {
  const address = new URL(url);
  unanswered.add(address);
  try {
    const answer = await fetch(url, {
      ...request,
      // Nothing may tie the report to the fetch: no cookies, and where the platform allows it no common connection. A
      // browser drops both headers.
      headers: { ...request.headers, connection: "close", "accept-encoding": "identity" },
      credentials: "omit",
      redirect: "error",
      cache: "no-store",
      referrerPolicy: "no-referrer",
      signal: AbortSignal.timeout(Math.ceil(seconds * 1000)),
    });
    return { status: answer.status, headers: answer.headers, body: await readBounded(answer, answer.ok ? maxBytes : PROBLEM_MAX) };
  } catch (error) {
    throw unavailable(describeSilence(error, url, seconds));
  } finally {
    unanswered.delete(address);
  }
}

const CLOSED = /CONNREFUSED|NOTFOUND|AI_AGAIN|UNREACH/;

/** @param {string} url @param {number} seconds */
export const timeoutMessage = (url, seconds) => `${new URL(url).origin} did not answer within ${seconds} s`;

/** @param {number} seconds */
export const ledgerTimeoutMessage = (seconds) => `the ledger did not answer within ${seconds} s`;

/** Who did not answer: a service that has a request, or else this device's ledger. @param {(string | undefined)[]} services @param {number} seconds */
export function describeDelay(services, seconds) {
  const origins = [...unanswered].map(({ origin }) => origin);
  const service = services.find((url) => url && origins.includes(new URL(url).origin));
  return service ? timeoutMessage(service, seconds) : ledgerTimeoutMessage(seconds);
}

/** @param {string} url */
export const nonsense = (url) => `${new URL(url).origin} answered, but not what it was asked for`;

/** Why there is no answer, in the words of every client. @param {any} error @param {string} url @param {number} seconds */
function describeSilence(error, url, seconds) {
  if (error?.name === "TimeoutError") return timeoutMessage(url, seconds);
  const closed = `nothing listens at ${new URL(url).origin}`;
  // A browser does not tell a service that is closed from one that does not allow a page's origin.
  const page = globalThis.location?.origin;
  if (page && error instanceof TypeError) return `${closed}, or it does not allow pages of ${page} (PRIVATEER_CORS_ORIGINS)`;
  return CLOSED.test(error?.cause?.code) ? closed : nonsense(url);
}

/** @param {Response} answer @param {number} maxBytes */
async function readBounded(answer, maxBytes) {
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const chunks = [];
  const reader = answer.body?.getReader();
  for (let size = 0; reader; ) {
    const { done: isDone, value } = await reader.read();
    if (isDone) break;
    size += value.length;
    if (size > maxBytes) throw unavailable("the answer is too large");
    chunks.push(value);
  }
  return concatBytes(...chunks);
}

/** The name of the problem in an answer; null if it is none. @param {Answer} answer @returns {string | null} */
export function readSlug({ body }) {
  try {
    return /^urn:privateer:problem:(.+)/.exec(json(body).type)?.[1] ?? null;
  } catch {
    return null;
  }
}

/** The address of a service, as requests have it. @param {string} url @param {string} field */
export function normalizeUrl(url, field) {
  try {
    const { href, origin, pathname } = new URL(url);
    // Servers resolve what is encoded: each path has one spelling, so that nobody pays again under another.
    const path = decodeURIComponent(pathname).split("/").filter(Boolean).map(encodeURIComponent);
    if (/^https?:..[^@/]*[^@./](?<!:0)\.?\/[^?]*$/.test(href)) return [origin.replace(/\.(?=:|$)/, ""), ...path].join("/");
  } catch {
    // It is no address, as below.
  }
  throw invalid("not the address of a service: write https://host or https://host:port", field);
}
