// When an experiment will be over, from counts that this page has seen. Pure: no page is needed.

const LEAST = 60_000, BASE = 24 * 3_600_000, MOST = 120;

/** Counts seen so far with one more: `[{at, accepted}]`. They begin anew where counts have gone down. */
export function remembered(points, at, accepted) {
  const before = points.filter((one) => Number.isFinite(one.at) && one.at <= at && at - one.at <= BASE);
  if (before.some((one) => one.accepted > accepted)) return [{ at, accepted }];
  const last = before.at(-1);
  if (last && at - last.at < BASE / MOST && before.length > 1) return [...before.slice(0, -1), { at, accepted }];
  return [...before, { at, accepted }];
}

/** Reports a millisecond, and when the planned ones will have come; null as long as nothing can be said. */
export function expected(points, planned) {
  const first = points[0], last = points.at(-1);
  if (!first || last.at - first.at < LEAST || last.accepted <= first.accepted) return null;
  const rate = (last.accepted - first.accepted) / (last.at - first.at);
  return { rate, since: last.at - first.at, came: last.accepted - first.accepted,
    end: last.at + Math.max(0, planned - last.accepted) / rate };
}
