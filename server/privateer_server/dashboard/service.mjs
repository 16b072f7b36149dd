// Asks the server's public routes, and follows what it tells.

import { Refused, Silent } from "./errors.mjs";
import { listen, NoStream } from "./events.mjs";

const SECONDS = 1000, PATIENCE = 20 * SECONDS, EVERY = 4 * SECONDS, WITHOUT = 60 * SECONDS;
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
export const page = (name, rest = "") => `experiments/${encodeURIComponent(name)}${rest}`;

/** Ask now, where the page would wait for a while before it asks again. */
export const askNow = () => bell.dispatchEvent(new Event("ring"));

/**
 * Follow a stream of news until `signal` ends; where there is none, ask again and again. A hidden page rests.
 *
 * `load(signal, news)` makes what is shown of news; of null, that nothing has changed; without, it asks for everything.
 * `told` is told `{data, at, live}` or `{error}`.
 */
export async function follow(path, load, told, signal) {
  const state = { last: "", failures: 0, from: 0 };
  while (!signal.aborted) {
    let pause = EVERY;
    try {
      if (Date.now() < state.from || !(await streamed(path, load, told, signal, state))) {
        told({ data: await load(signal), at: Date.now(), live: false });
      } else pause = SECONDS;
    } catch (error) {
      if (signal.aborted) return;
      told({ error });
      Object.assign(state, { last: "", failures: 0, from: 0 });
      pause = error instanceof Refused ? 10 * EVERY : EVERY;
    }
    await rest(pause, signal);
    await visible(signal);
  }
}

/** Listen until the stream ends in order, or nobody looks; false where it fails, and asking may not. */
async function streamed(path, load, told, signal, state) {
  const looking = new AbortController(), hide = () => document.hidden && looking.abort();
  document.addEventListener("visibilitychange", hide);
  const ended = AbortSignal.any([signal, looking.signal]);
  try {
    await listen(path, state.last, async (news) => {
      const data = await load(ended, news && news.data);
      told({ data, at: Date.now(), live: true });
      Object.assign(state, { failures: 0, last: news ? news.id : state.last });
    }, ended);
    return true;
  } catch (error) {
    if (looking.signal.aborted && !signal.aborted) return true;
    if (signal.aborted) throw error;
    state.failures += 1;
    // One that breaks off comes back with the server; one that never works is not tried all the time.
    if (error instanceof NoStream || state.failures > 1) state.from = Date.now() + WITHOUT;
    return false;
  } finally {
    document.removeEventListener("visibilitychange", hide);
  }
}

function rest(milliseconds, signal) {
  return new Promise((resolve) => {
    const calls = [[bell, "ring"], [signal, "abort"]];
    const done = () => {
      clearTimeout(timer);
      for (const [from, name] of calls) from.removeEventListener(name, done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    for (const [from, name] of calls) from.addEventListener(name, done);
  });
}

function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
    signal.addEventListener("abort", resolve, { once: true });
  });
}
