/** Every request that this page makes to the services, with its size: what left, and what came. */

const NAMES = [[/\/policy$/, "asked for the policy"], [/\/reports$/, "sent the sealed report"]];

/** Tell of each request; `tell({what, out, in, body})`. Requests of simulated people are not told. */
export function watchRequests(tell) {
  const ask = globalThis.fetch.bind(globalThis);
  const watch = { muted: false };
  globalThis.fetch = async (url, request = {}) => {
    const what = NAMES.find(([pattern]) => pattern.test(String(url)))?.[1];
    const isTold = what && !watch.muted && request.headers?.accept !== "application/json";
    const answer = await ask(url, request);
    if (isTold) {
      const { length } = new Uint8Array(await answer.clone().arrayBuffer());
      tell({ what, out: request.body?.length ?? 0, in: length, body: request.body ?? null });
    }
    return answer;
  };
  return watch;
}
