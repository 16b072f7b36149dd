// Asks the server's public routes.

const SECONDS = 1000, PATIENCE = 20 * SECONDS;

/** The server answered that it will not. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** The server did not answer. */
export class Silent extends Error {}

/** The JSON at an address, relative to the page. The browser keeps entity tags and sends them along. */
export async function ask(path, signal) {
  let response, body;
  try {
    const patience = AbortSignal.timeout(PATIENCE);
    const ended = signal ? AbortSignal.any([signal, patience]) : patience;
    response = await fetch(path, { headers: { accept: "application/json" }, cache: "no-cache", signal: ended });
    body = await response.json();
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new Silent(String(error?.message ?? error));
  }
  if (response.ok) return body;
  if (response.status >= 500) throw new Silent(`status ${response.status}`);
  throw new Refused(response.status, String(body?.detail ?? `status ${response.status}`));
}

/** The same, or null where there is no such page. */
export async function askIfThere(path, signal) {
  try {
    return await ask(path, signal);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

/** The address of an experiment, or of one of its pages. */
export const page = (name, rest = "") => `experiments/${encodeURIComponent(name)}${rest}`;

/**
 * Ask again and again until `signal` ends: `load` asks, `told` is told `{data, at}` or `{error}`. A hidden page rests.
 */
export async function follow(load, told, signal, every = 4 * SECONDS) {
  let pause = every;
  while (!signal.aborted) {
    try {
      const data = await load(signal);
      if (signal.aborted) return;
      told({ data, at: Date.now() });
      pause = every;
    } catch (error) {
      if (signal.aborted) return;
      told({ error });
      pause = error instanceof Refused ? 10 * every : every;
    }
    await rest(pause, signal);
    await visible(signal);
  }
}

function rest(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
    signal.addEventListener("abort", resolve, { once: true });
  });
}
