// The admin token. It is in the memory of this page and nowhere else: no storage, no cookie, no address has it, and the
// browser sends it with nothing but the requests that are made here. So no other page can have the browser send it.

import { Refused, Silent } from "../errors.mjs";

const PATIENCE = 120_000, IDLE = 30 * 60_000;
let token = "", timer = null;
const listeners = new Set();

/** Keep a token until the page is left, or nobody has used it for half an hour. */
export function keepToken(text) {
  token = text.trim();
  clearTimeout(timer);
  timer = token ? setTimeout(forgetToken, IDLE) : null;
  for (const listener of listeners) listener(hasToken());
}

/** Forget the token. */
export const forgetToken = () => keepToken("");

/** Whether there is one. */
export const hasToken = () => token !== "";

/** Have a function called whenever a token is kept or forgotten, until `signal` ends. */
export function onTokenChange(listener, signal) {
  listeners.add(listener);
  signal?.addEventListener("abort", () => listeners.delete(listener), { once: true });
}

/**
 * Send a request of the operator, and return the JSON that is answered.
 *
 * Throws `Refused` with the problem, or `Silent` where nobody knows whether it was done.
 */
export async function send(method, path, body = null, type = "application/json") {
  keepToken(token);
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
addEventListener("pagehide", forgetToken);
