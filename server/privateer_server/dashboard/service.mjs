// Asks the server's public routes, and follows what it tells.

import { Refused, Silent } from "./errors.mjs";

const SECONDS = 1000, PATIENCE = 20 * SECONDS, EVERY = 4 * SECONDS;
const bell = new EventTarget();

/** The JSON at an address, relative to the page. The browser keeps entity tags and sends them along. */
export async function ask(path, signal, options = {}) {
  let response, body;
  try {
    const patience = AbortSignal.timeout(PATIENCE);
    const ended = signal ? AbortSignal.any([signal, patience]) : patience;
    response = await fetch(path, { cache: "no-cache", ...options, headers: { accept: "application/json", ...options.headers }, signal: ended });
    body = await response.json();
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new Silent(String(error?.message ?? error));
  }
  if (response.ok) return body;
  if (response.status >= 500) throw new Silent(`status ${response.status}`);
  throw new Refused(response.status, String(body?.detail ?? `status ${response.status}`), body ?? {});
}

/** The address of an experiment, or of one of its pages. */
export const makeAddress = (name, rest = "") => `experiments/${encodeURIComponent(name)}${rest}`;

/** Ask now, where the page would wait for a while before it asks again. */
export const askNow = () => bell.dispatchEvent(new Event("ring"));

/**
 * Ask again and again until `signal` ends; a hidden page rests. `load(signal)` makes what is shown, and `told` is told
 * `{data, at}` or `{error}`.
 */
export async function follow(load, listener, signal) {
  while (!signal.aborted) {
    let pause = EVERY;
    try {
      listener({ data: await load(signal), at: Date.now() });
    } catch (error) {
      if (signal.aborted) return;
      listener({ error });
      if (error instanceof Refused) pause = 10 * EVERY;
    }
    await rest(pause, signal);
    await waitUntilVisible(signal);
  }
}

function rest(milliseconds, signal) {
  return new Promise((resolve) => {
    const calls = [[bell, "ring"], [signal, "abort"]];
    const finish = () => {
      clearTimeout(timer);
      for (const [from, name] of calls) from.removeEventListener(name, finish);
      resolve();
    };
    const timer = setTimeout(finish, milliseconds);
    for (const [from, name] of calls) from.addEventListener(name, finish);
  });
}

function waitUntilVisible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
    signal.addEventListener("abort", resolve, { once: true });
  });
}
