// Shape functions: what each feature adds to the mean reward of each option, drawn as curves or, of levels, as marks.

import { roundTicks } from "./charts.mjs";
import { el, more, svg } from "./dom.mjs";
import { picture, swatch } from "./picture.mjs";
import { table } from "./tables.mjs";
import { count, figure, letter, many, shortened } from "./words.mjs";

const SHOWN = 6, WIDTH = 400, HEIGHT = 210, LEFT = 46, TOP = 8, BOTTOM = 40, NAMED = 6, LETTER = 6.6, GAP = 10;

/** The drawings of the features that choose most; the others when somebody asks, and all as tables. */
export function shapes({ functions, features_left: features, options_left: others }, { id, width, options }) {
  if (!functions.length) return null;
  const letters = new Map(functions[0].curves.map(({ option }) => [option, Math.max(0, options.indexOf(option))]));
  const drawings = (some) => el("div", { class: "smalls" }, some.map((one) => drawing(one, letters, Math.min(WIDTH, width))));
  const left = [features ? many(features, "feature") : "", others ? many(others, "option") : ""].filter(Boolean).join(" and ");
  return el("div", { class: "finding" }, el("h3", {}, "What each feature adds"),
    el("p", {}, `How far each feature raises or lowers the mean reward of each option, apart from the other features, with intervals of about 95 %. Over all people it adds 0. A curve compares an option with itself: the higher it is, the more the feature speaks for that option.${left ? ` Not shown: ${left} that matter less.` : ""}`),
    el("ul", { class: "legend", "aria-label": "Options" }, [...letters].map(([option, place]) => el("li", {}, swatch(place), ` ${letter(place)} = ${option}`))),
    drawings(functions.slice(0, SHOWN)),
    functions.length > SHOWN ? more(`${id}-others`, `${many(functions.length - SHOWN, "more feature")}`, () => drawings(functions.slice(SHOWN))) : null,
    more(`${id}-more`, "As tables", () => el("div", {}, functions.map((one, n) => table(`${id}-${n}`, one.feature, columns(one), rows(one))))));
}

const columns = ({ curves }) => [{ name: "cell", kind: "words" }, { name: "people", kind: "share" }, ...curves.map(({ option }) => ({ name: option, kind: "words" }))];
const rows = ({ cells, shares, curves }) => cells.map((name, n) => [name, shares[n], ...curves.map(({ values, lows, highs }) => `${figure(values[n], 2)} (${figure(lows[n], 2)} to ${figure(highs[n], 2)})`)]);

/** One feature. */
function drawing(shape, places, width) {
  const { feature, cells, curves, gain, is_ordered: isOrdered, has_missing: hasMissing, cells_left: left } = shape;
  const ends = curves.flatMap(({ lows, highs }) => [...lows, ...highs]), low = Math.min(0, ...ends), high = Math.max(0, ...ends);
  const bottom = HEIGHT - BOTTOM, each = (width - LEFT - 16) / cells.length;
  const x = (cell) => LEFT + (cell + 0.5) * each, y = (value) => bottom - (bottom - TOP) * (value - low) / (high - low || 1);
  const made = picture(spoken(shape), width, HEIGHT);
  for (const tick of roundTicks(low, high, 4)) {
    made.append(svg("line", { class: tick === 0 ? "zero" : "grid", x1: LEFT, x2: width - 16, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, figure(tick, 2)));
  }
  const inLine = isOrdered ? cells.length - (hasMissing ? 1 : 0) : 0;
  curves.forEach((curve, n) => {
    const place = places.get(curve.option), beside = 0.6 * each * ((n + 0.5) / curves.length - 0.5);
    if (inLine) made.append(...line(curve, inLine, place, x, y));
    for (let cell = inLine; cell < cells.length; cell++) made.append(...mark(curve, cell, place, x(cell) + beside, y));
  });
  made.append(...named(cells, isOrdered, x, each, bottom));
  const more = left ? ` ${many(left, "more level")} with fewer people.` : "";
  return el("figure", { class: "small wide" }, el("figcaption", {}, feature, el("span", { class: "muted" }, ` by itself gains ${figure(gain, 2)}.${more}`)), made);
}

const own = (place) => `arm-${place % 8}`;

/** A curve with its band, and the letter of its option where it ends. */
function line({ option, values, lows, highs }, cells, place, x, y) {
  const there = highs.slice(0, cells).map((value, n) => `${x(n)} ${y(value)}`), back = lows.slice(0, cells).map((value, n) => `${x(n)} ${y(value)}`).reverse();
  return [svg("path", { class: `around ${own(place)}`, d: `M${[...there, ...back].join("L")}z` }),
    svg("path", { class: `curve ${own(place)}`, d: `M${values.slice(0, cells).map((value, n) => `${x(n)} ${y(value)}`).join("L")}` }, svg("title", {}, option)),
    svg("text", { class: "tick", x: x(cells - 1) + 4, y: y(values[cells - 1]) + 4 }, letter(place))];
}

/** A value with its interval, and the letter of its option. */
function mark({ option, values, lows, highs }, cell, place, at, y) {
  return [svg("path", { class: `curve ${own(place)}`, d: `M${at} ${y(lows[cell])}L${at} ${y(highs[cell])}` }),
    svg("circle", { class: own(place), cx: at, cy: y(values[cell]), r: 3.5 }, svg("title", {}, option)),
    svg("text", { class: "tick", x: at + 3, y: y(highs[cell]) + 10 }, letter(place))];
}

/** Names of a few cells: of all where they are few, and of those in order as many as there is room for. */
function named(cells, isOrdered, x, each, bottom) {
  const longest = Math.max(...cells.map(({ length }) => length));
  const every = Math.max(Math.ceil(cells.length / NAMED), isOrdered ? Math.ceil((longest * LETTER + GAP) / each) : 1);
  const first = Math.floor((every - 1) / 2);
  return cells.map((name, n) => [name, n]).filter(([, n]) => n % every === first)
    .map(([name, n]) => svg("text", { class: "tick", x: x(n), y: bottom + 18, "text-anchor": "middle" }, shortened(name, (every * each) / LETTER), svg("title", {}, name)));
}

/** The drawing in words. */
function spoken({ feature, cells, curves }) {
  const said = curves.map(({ option, values }) => {
    const least = values.indexOf(Math.min(...values)), most = values.indexOf(Math.max(...values));
    return `${option} from ${figure(values[least], 2)} at ${cells[least]} to ${figure(values[most], 2)} at ${cells[most]}`;
  });
  return `${feature}, ${count(cells.length)} cells: ${said.join("; ")}`;
}
