// Small charts: intervals, lines with bands, bars of shares. Each has its figures in a table beside it.

import { chooseMark } from "./decisions.mjs";
import { el, svg } from "./dom.mjs";
import { fills, picture } from "./picture.mjs";
import { formatFigure, formatCount, formatPercent, shortenMiddle } from "./words.mjs";

const NAMES = 0.34, LETTER = 7.9;

/** Where round figures lie between two values. */
export function roundTicks(low, high, maxTicks = 5) {
  if (!(high > low)) return [low];
  const raw = (high - low) / maxTicks, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= raw);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
}

/** The range of some estimates, with 0 where it means none; open ends do not stretch it. */
function findRange(rows, withZero) {
  const ends = rows.flatMap(({ value, low, high }) => [value, low, high]).filter(Number.isFinite);
  if (withZero) ends.push(0);
  if (!ends.length) ends.push(0, 1);
  const low = Math.min(...ends), high = Math.max(...ends);
  if (low === high) return [Math.min(0, low), Math.max(0, high) || 1];
  const margin = 0.05 * (high - low);
  return [low - margin, high + margin];
}

/**
 * Estimates with their intervals, one below the other.
 *
 * @param {string} label what the drawing shows, for those who do not see it
 * @param {{label, value, low, high, decided, reason}[]} rows a value of null: nothing is known, and the reason says why
 * @param {boolean} differences whether 0 means no difference
 * @param {number} width in pixels
 */
export function drawIntervals(label, rows, differences, width) {
  const narrow = width < 520, left = narrow ? 8 : Math.min(260, NAMES * width), right = width - 12, each = narrow ? 44 : 28;
  const height = rows.length * each + 28, [low, high] = findRange(rows, differences);
  const x = (value) => left + (right - left) * (Math.min(high, Math.max(low, value)) - low) / (high - low || 1);
  const drawing = picture(label, width, height);
  for (const tick of roundTicks(low, high, narrow ? 3 : 6)) {
    drawing.append(svg("line", { class: tick === 0 && differences ? "zero" : "grid", x1: x(tick), x2: x(tick), y1: 4, y2: height - 20 }),
      svg("text", { class: "tick", x: x(tick), y: height - 6, "text-anchor": "middle" }, formatFigure(tick)));
  }
  rows.forEach((row, n) => {
    const y = n * each + (narrow ? 30 : 18);
    const name = svg("text", narrow ? { x: left, y: y - 12 } : { x: left - 10, y: y + 4, "text-anchor": "end" },
      shortenMiddle(row.label, (narrow ? width - 2 * left : left - 12) / LETTER));
    name.append(svg("title", {}, row.reason ? `${row.label}: ${row.reason}${row.remark ? `; ${row.remark}` : ""}` : row.label));
    drawing.append(name);
    if (row.value === null) {
      drawing.append(svg("text", { class: "unknown", x: left + 8, y: y + 4 }, row.reason || "nothing is known yet"));
      return;
    }
    drawing.append(svg("line", { class: "interval", x1: x(row.low), x2: x(row.high), y1: y, y2: y }),
      ...[row.low, row.high].filter(Number.isFinite).map((end) => svg("line", { class: "interval", x1: x(end), x2: x(end), y1: y - 5, y2: y + 5 })),
      drawMark(x(row.value), y, chooseMark(row)));
  });
  return drawing;
}

/** A square where something is decided, a ring or a diamond where it is not, a disc where nobody says. */
function drawMark(x, y, kind) {
  if (kind === "square") return svg("rect", { class: "mark", x: x - 5, y: y - 5, width: 10, height: 10 });
  if (kind === "diamond") return svg("path", { class: "mark open", d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z` });
  return svg("circle", { class: kind === "ring" ? "mark open" : "mark", cx: x, cy: y, r: 5 });
}

/**
 * A line over people or versions, with a band where there are intervals.
 *
 * @param {{at, value, low, high}[]} points
 */
export function drawLine(title, points, { differences = false, width = 280, height = 120, unit = "people" } = {}) {
  const left = 46, right = width - 10, top = 10, bottom = height - 22;
  const [low, high] = findRange(points, differences);
  const first = points[0].at, last = points.at(-1).at;
  const x = (at) => (first === last ? (left + right) / 2 : left + (right - left) * (at - first) / (last - first));
  const y = (value) => bottom - (bottom - top) * (Math.min(high, Math.max(low, value)) - low) / (high - low || 1);
  const end = points.at(-1), around = Number.isFinite(end.low) ? `, from ${formatFigure(end.low)} to ${formatFigure(end.high)}` : "";
  const label = `${title}: ${formatFigure(end.value)}${around} after ${unit === "people" ? formatCount(last, "person", "people") : `version ${last}`}`;
  const drawing = picture(label, width, height);
  for (const tick of roundTicks(low, high, 3)) {
    drawing.append(svg("line", { class: tick === 0 && differences ? "zero" : "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, formatFigure(tick, 3)));
  }
  const banded = points.filter((point) => Number.isFinite(point.low) && Number.isFinite(point.high));
  if (banded.length > 1) {
    const upperEdge = banded.map((point) => `${x(point.at)} ${y(point.high)}`), lowerEdge = banded.map((point) => `${x(point.at)} ${y(point.low)}`);
    drawing.append(svg("path", { class: "band", d: `M${[...upperEdge, ...lowerEdge.reverse()].join("L")}z` }));
  } else {
    for (const point of banded) drawing.append(svg("line", { class: "interval", x1: x(point.at), x2: x(point.at), y1: y(point.low), y2: y(point.high) }));
  }
  drawing.append(svg("path", { class: "line", d: `M${points.map((point) => `${x(point.at)} ${y(point.value)}`).join("L")}` }));
  const dots = points.length <= 40 ? points : [end];
  for (const point of dots) drawing.append(svg("circle", { class: "mark", cx: x(point.at), cy: y(point.value), r: 3 }));
  drawing.append(svg("text", { class: "tick", x: left, y: height - 6 }, formatFigure(first)),
    first === last ? "" : svg("text", { class: "tick", x: right, y: height - 6, "text-anchor": "end" }, `${formatFigure(last)} ${unit === "people" ? "people" : ""}`));
  return el("figure", { class: "small" }, el("figcaption", {}, title), drawing);
}

/** Bars of the shares of arms, with the letter of each arm. */
export function drawShareBar(label, arms, order, letters, width) {
  const height = 26, drawing = picture(label, width, height);
  let x = 0;
  for (const arm of order.filter((arm) => arms[arm] > 0)) {
    const wide = arms[arm] * width, place = order.indexOf(arm);
    const group = svg("g", {}, svg("title", {}, `${arm}: ${formatPercent(arms[arm], 1)}`), fills(place).map((name) => svg("rect", { class: name, x, y: 0, width: wide, height })));
    drawing.append(group);
    if (wide > 18) drawing.append(svg("text", { class: "on-arm", x: x + wide / 2, y: 18, "text-anchor": "middle" }, letters[place]));
    x += wide;
  }
  return drawing;
}

/** How far something is. */
export function makeProgressBar(label, completed, total) {
  const share = total > 0 ? Math.min(1, completed / total) : 0;
  return el("progress", { "aria-label": label, max: "1", value: String(share) }, formatPercent(share));
}
