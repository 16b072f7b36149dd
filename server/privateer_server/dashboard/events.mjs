// Server-sent events. They are read by `fetch`: unlike the browser's own reader it says why a server refuses, and this
// page hears it when a server falls silent.

import { Silent } from "./errors.mjs";

const PATIENCE = { opening: 6_000, quiet: 14_000 };

/** The server refuses the stream: it has no room for another, or something in between does not pass it. */
export class NoStream extends Error {}

/** Takes the text of a stream apart, piece by piece. Pure: no page is needed. */
export class Messages {
  constructor() {
    this.rest = "";
  }

  /** The messages that a piece completes, `{id, data}`; null stands for a comment, which only says that all is well. */
  take(piece) {
    const blocks = (this.rest + piece).split(/\r?\n\r?\n/);
    this.rest = blocks.pop();
    return blocks.filter(Boolean).map(message);
  }
}

function message(block) {
  let id = "";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (name === "id") id = value;
    if (name === "data") data.push(value);
  }
  return data.length ? { id, data: data.join("\n") } : null;
}

/**
 * Listen to a stream until it ends. `heard({id, data})` is called for every message and `heard(null)` for every sign
 * of life in between; the next one waits for it.
 *
 * Throws `NoStream`, `Silent` where nothing comes for longer than the server ever says nothing, and what `heard` does.
 */
export async function listen(path, lastId, heard, signal, { opening, quiet } = PATIENCE) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), opening);
  const alive = () => { clearTimeout(timer); timer = setTimeout(() => silence.abort(), quiet); };
  try {
    const headers = { accept: "text/event-stream", ...(lastId ? { "last-event-id": lastId } : {}) };
    const response = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.any([signal, silence.signal]) });
    if (!response.ok) throw new NoStream(`status ${response.status}`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader(), messages = new Messages();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      for (const one of messages.take(value)) await heard(one && { id: one.id, data: JSON.parse(one.data) });
      alive();
    }
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    if (silence.signal.aborted) throw new Silent("nothing came");
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
