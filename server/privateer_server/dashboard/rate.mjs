// When an experiment will be over, from counts that this page has seen. Pure: no page is needed.

const LEAST = 60_000, BASE = 24 * 3_600_000, MOST = 120;

/** Counts seen so far with one more: `[{at, accepted}]`. They begin anew where counts have gone down. */
export function addPoint(points, time, accepted) {
  const recentPoints = points.filter((point) => Number.isFinite(point.at) && point.at <= time && time - point.at <= BASE);
  if (recentPoints.some((point) => point.accepted > accepted)) return [{ at: time, accepted }];
  const last = recentPoints.at(-1);
  if (last && time - last.at < BASE / MOST && recentPoints.length > 1) return [...recentPoints.slice(0, -1), { at: time, accepted }];
  return [...recentPoints, { at: time, accepted }];
}

/** Reports a millisecond, and when the planned ones will have come; null as long as nothing can be said. */
export function estimateEnd(points, planned) {
  const first = points[0], last = points.at(-1);
  if (!first || last.at - first.at < LEAST || last.accepted <= first.accepted) return null;
  const rate = (last.accepted - first.accepted) / (last.at - first.at);
  return { rate, since: last.at - first.at, came: last.accepted - first.accepted,
    end: last.at + Math.max(0, planned - last.accepted) / rate };
}
