// The admin token. It is in the memory of this page and nowhere else: no storage, no cookie, no address has it, and the
// browser sends it with nothing but the requests that are made here. So no other page can have the browser send it.

import { Refused, Silent } from "../errors.mjs";

const PATIENCE = 120_000, IDLE = 30 * 60_000;
let token = "", timer = null;
const listeners = new Set();

/** Keep a token until the page is left, or nobody has used it for half an hour. */
export function keep(text) {
  token = text.trim();
  clearTimeout(timer);
  timer = token ? setTimeout(forget, IDLE) : null;
  for (const told of listeners) told(isKept());
}

/** Forget the token. */
export const forget = () => keep("");

/** Whether there is one. */
export const isKept = () => token !== "";

/** Have a function called whenever a token is kept or forgotten, until `signal` ends. */
export function whenKept(told, signal) {
  listeners.add(told);
  signal?.addEventListener("abort", () => listeners.delete(told), { once: true });
}

/**
 * Send a request of the operator, and return the JSON that is answered.
 *
 * Throws `Refused` with the problem, or `Silent` where nobody knows whether it was done.
 */
export async function send(method, path, body = null, type = "application/json") {
  keep(token);
  const headers = { accept: "application/json", authorization: `Bearer ${token}`, ...(body === null ? {} : { "content-type": type }) };
  let response, answer;
  try {
    response = await fetch(path, { method, headers, body, cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(PATIENCE) });
    answer = await response.json();
  } catch (error) {
    throw new Silent(String(error?.message ?? error));
  }
  if (!response.ok) throw new Refused(response.status, String(answer?.detail ?? `status ${response.status}`), answer ?? {});
  return answer;
}

// A page that is left may be kept by the browser, with its memory.
addEventListener("pagehide", forget);
