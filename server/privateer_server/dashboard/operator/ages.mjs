// How long rounds have been open, from the metrics of the private listener.

const LINE = /^privateer_round_opened_timestamp_seconds\{experiment="([^"]+)"\} (\S+)$/;

/** Since when the open round of an experiment takes reports, in milliseconds; null where that is not told. Pure. */
export function parseOpenedAt(text, name) {
  for (const line of text.split("\n")) {
    const match = LINE.exec(line);
    if (match?.[1] === name) return 1000 * Number(match[2]);
  }
  return null;
}

/** The same, asked for. */
export async function fetchRoundStart(name, signal) {
  const response = await fetch("metrics", { cache: "no-store", signal });
  return response.ok ? parseOpenedAt(await response.text(), name) : null;
}
