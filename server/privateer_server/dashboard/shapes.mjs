// Shape functions: what each feature adds to the mean reward of each option, drawn as curves or, of levels, as marks.

import { roundTicks } from "./charts.mjs";
import { el, makeDetails, svg } from "./dom.mjs";
import { picture, swatch } from "./picture.mjs";
import { makeTable } from "./tables.mjs";
import { formatNumber, formatFigure, armLetter, formatCount, shorten } from "./words.mjs";

const SHOWN = 6, WIDTH = 400, HEIGHT = 210, LEFT = 46, TOP = 8, BOTTOM = 40, NAMED = 6, LETTER = 6.6, GAP = 10;

/** The drawings of the features that choose most; the others when somebody asks, and all as tables. */
export function drawShapes({ functions, features_left: features, arms_left: others }, { id, width, options }) {
  if (!functions.length) return null;
  const letters = new Map(functions[0].curves.map(({ arm }) => [arm, Math.max(0, options.indexOf(arm))]));
  const drawings = (shown) => el("div", { class: "smalls" }, shown.map((shape) => drawShape(shape, letters, Math.min(WIDTH, width))));
  const hiddenNote = [features ? formatCount(features, "feature") : "", others ? formatCount(others, "option") : ""].filter(Boolean).join(" and ");
  return el("div", { class: "finding" }, el("h3", {}, "What each feature adds"),
    el("p", {}, `How far each feature raises or lowers the mean reward of each option, apart from the other features, with intervals of about 95 %. Over all people it adds 0. A curve compares an option with itself: the higher it is, the more the feature speaks for that option.${hiddenNote ? ` Not shown: ${hiddenNote} that matter less.` : ""}`),
    el("ul", { class: "legend", "aria-label": "Options" }, [...letters].map(([arm, place]) => el("li", {}, swatch(place), ` ${armLetter(place)} = ${arm}`))),
    drawings(functions.slice(0, SHOWN)),
    functions.length > SHOWN ? makeDetails(`${id}-others`, `${formatCount(functions.length - SHOWN, "more feature")}`, () => drawings(functions.slice(SHOWN))) : null,
    makeDetails(`${id}-more`, "As tables", () => el("div", {}, functions.map((shape, n) => makeTable(`${id}-${n}`, shape.feature, makeColumns(shape), makeRows(shape))))));
}

const makeColumns = ({ curves }) => [{ name: "cell", kind: "words" }, { name: "people", kind: "share" }, ...curves.map(({ arm }) => ({ name: arm, kind: "words" }))];
const makeRows = ({ cells, shares, curves }) => cells.map((name, n) => [name, shares[n], ...curves.map(({ values, lows, highs }) => `${formatFigure(values[n], 2)} (${formatFigure(lows[n], 2)} to ${formatFigure(highs[n], 2)})`)]);

/** One feature. */
function drawShape(shape, places, width) {
  const { feature, cells, curves, gain, is_ordered: isOrdered, has_missing: hasMissing, cells_left: left } = shape;
  const ends = curves.flatMap(({ lows, highs }) => [...lows, ...highs]), low = Math.min(0, ...ends), high = Math.max(0, ...ends);
  const bottom = HEIGHT - BOTTOM, each = (width - LEFT - 16) / cells.length;
  const x = (cell) => LEFT + (cell + 0.5) * each, y = (value) => bottom - (bottom - TOP) * (value - low) / (high - low || 1);
  const figurePicture = picture(describeShape(shape), width, HEIGHT);
  for (const tick of roundTicks(low, high, 4)) {
    figurePicture.append(svg("line", { class: tick === 0 ? "zero" : "grid", x1: LEFT, x2: width - 16, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, formatFigure(tick, 2)));
  }
  const inLine = isOrdered ? cells.length - (hasMissing ? 1 : 0) : 0;
  curves.forEach((curve, n) => {
    const place = places.get(curve.arm), beside = 0.6 * each * ((n + 0.5) / curves.length - 0.5);
    if (inLine) figurePicture.append(...drawCurve(curve, inLine, place, x, y));
    for (let cell = inLine; cell < cells.length; cell++) figurePicture.append(...drawMark(curve, cell, place, x(cell) + beside, y));
  });
  figurePicture.append(...makeLabels(cells, isOrdered, x, each, bottom));
  const more = left ? ` ${formatCount(left, "more level")} with fewer people.` : "";
  return el("figure", { class: "small wide" }, el("figcaption", {}, feature, el("span", { class: "muted" }, ` by itself gains ${formatFigure(gain, 2)}.${more}`)), figurePicture);
}

const armClass = (place) => `arm-${place % 8}`;

/** A curve with its band, and the letter of its option where it ends. */
function drawCurve({ arm, values, lows, highs }, cells, place, x, y) {
  const upperEdge = highs.slice(0, cells).map((value, n) => `${x(n)} ${y(value)}`), lowerEdge = lows.slice(0, cells).map((value, n) => `${x(n)} ${y(value)}`).reverse();
  return [svg("path", { class: `around ${armClass(place)}`, d: `M${[...upperEdge, ...lowerEdge].join("L")}z` }),
    svg("path", { class: `curve ${armClass(place)}`, d: `M${values.slice(0, cells).map((value, n) => `${x(n)} ${y(value)}`).join("L")}` }, svg("title", {}, arm)),
    svg("text", { class: "tick", x: x(cells - 1) + 4, y: y(values[cells - 1]) + 4 }, armLetter(place))];
}

/** A value with its interval, and the letter of its option. */
function drawMark({ arm, values, lows, highs }, cell, place, middle, y) {
  return [svg("path", { class: `curve ${armClass(place)}`, d: `M${middle} ${y(lows[cell])}L${middle} ${y(highs[cell])}` }),
    svg("circle", { class: armClass(place), cx: middle, cy: y(values[cell]), r: 3.5 }, svg("title", {}, arm)),
    svg("text", { class: "tick", x: middle + 3, y: y(highs[cell]) + 10 }, armLetter(place))];
}

/** Names of a few cells: of all where they are few, and of those in order as many as there is room for. */
function makeLabels(cells, isOrdered, x, each, bottom) {
  const longest = Math.max(...cells.map(({ length }) => length));
  const step = Math.max(Math.ceil(cells.length / NAMED), isOrdered ? Math.ceil((longest * LETTER + GAP) / each) : 1);
  const first = Math.floor((step - 1) / 2);
  return cells.map((name, n) => [name, n]).filter(([, n]) => n % step === first)
    .map(([name, n]) => svg("text", { class: "tick", x: x(n), y: bottom + 18, "text-anchor": "middle" }, shorten(name, (step * each) / LETTER), svg("title", {}, name)));
}

/** The drawing in words. */
function describeShape({ feature, cells, curves }) {
  const descriptions = curves.map(({ arm, values }) => {
    const lowest = values.indexOf(Math.min(...values)), highest = values.indexOf(Math.max(...values));
    return `${arm} from ${formatFigure(values[lowest], 2)} at ${cells[lowest]} to ${formatFigure(values[highest], 2)} at ${cells[highest]}`;
  });
  return `${feature}, ${formatNumber(cells.length)} cells: ${descriptions.join("; ")}`;
}
