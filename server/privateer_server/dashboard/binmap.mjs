// The map of a policy that has bins: who gets what, over one or two columns of a context.

import { across, areas, binAt, cutColumns, firstAxes, isScale, leading, pathOf, rectangle, sliced, ticks } from "./boxes.mjs";
import { announce, el, replace, svg } from "./dom.mjs";
import { fills, patterns, picture, swatch } from "./picture.mjs";
import { cell, figure, letter, many, people, percent, shares, shortened } from "./words.mjs";

const MARGIN = { left: 52, bottom: 40, top: 24, right: 12 };
const OUTLINED = 1500, LABELLED = 600;
const KEYS = { ArrowRight: [0, true], ArrowLeft: [0, false], ArrowUp: [1, true], ArrowDown: [1, false] };

/**
 * A map with its legend and controls. `chosen(bin)` is called with the bin that somebody chooses.
 *
 * The axes, the slice and the place that is chosen stay when another version is shown.
 */
export class BinMap {
  constructor(chosen) {
    this.chosen = chosen;
    this.place = el("div", { class: "map" });
    this.axes = null;
    this.at = null;
  }

  /** Show bins with all arms in order and the spec's features, in a width. */
  show({ bins, columns }, arms, features, width) {
    Object.assign(this, { bins, columns, arms, features, width, leads: bins.map(({ arms: one }) => leading(one)) });
    const dimension = this.bins[0].lower.length;
    if (this.at?.length !== dimension) {
      this.axes = firstAxes(this.bins, this.columns, features);
      this.at = Array.from({ length: dimension }, (_, j) => (dimension <= 2 || isScale(this.bins, j, this.columns[j], features) ? 0.5 : 0.25));
    }
    this.draw();
  }

  draw() {
    const free = this.axes.filter((j) => j >= 0), shown = sliced(this.bins, free, this.at);
    const counted = shown.length === this.bins.length ? many(shown.length, "bin") : `${many(shown.length, "bin")} of ${cell(this.bins.length)}`;
    replace(this.place, this.controls(), this.drawing(shown, counted), this.legend(shown));
    this.tell(false);
  }

  /** Which columns are drawn, and where the slice is along the others that are cut. */
  controls() {
    const dimension = this.at.length;
    if (dimension <= 2) return null;
    const columns = this.at.map((_, j) => j), free = this.axes;
    const choose = (which, label) => el("label", {}, `${label} `, el("select", { id: `axis-${which}`, onchange: (event) => {
      this.axes[which] = Number(event.target.value);
      this.draw();
    } }, which === 1 ? el("option", { value: "-1", selected: free[1] < 0 }, "nothing") : null,
    columns.filter((j) => j !== free[1 - which]).map((j) => el("option", { value: String(j), selected: j === free[which] }, this.columns[j]))));
    const others = cutColumns(this.bins).filter((j) => !free.includes(j));
    return el("div", { class: "controls" }, choose(0, "To the right"), choose(1, "Upwards"), others.map((j) => (isScale(this.bins, j, this.columns[j], this.features) ? this.slider(j) : this.either(j))));
  }

  /** A column that says yes or no, or the bit of a level. */
  either(j) {
    return el("label", {}, this.columns[j], el("select", { id: `slice-${j}`, onchange: (event) => {
      this.at[j] = Number(event.target.value);
      this.draw();
    } }, [["0.25", "no"], ["0.75", "yes"]].map(([value, text]) => el("option", { value, selected: this.at[j] >= 0.5 === (text === "yes") }, text))));
  }

  slider(j) {
    const shown = el("output", {}, percent(this.at[j]));
    return el("label", {}, `${this.columns[j]} at `, el("input", { type: "range", id: `slice-${j}`, min: "0", max: "1", step: "0.01",
      value: String(this.at[j]), "aria-valuetext": `${percent(this.at[j])} of its range`,
      onchange: (event) => { this.at[j] = Number(event.target.value); this.draw(); },
      oninput: (event) => { shown.textContent = percent(Number(event.target.value)); } }), shown);
  }

  drawing(shown, counted) {
    const wide = Math.max(120, this.width - MARGIN.left - MARGIN.right);
    const tall = this.axes[1] < 0 ? 72 : Math.min(wide, 460);
    this.size = [wide, tall];
    const whole = { width: wide + MARGIN.left + MARGIN.right, height: tall + MARGIN.top + MARGIN.bottom };
    this.inner = svg("g", { transform: `translate(${MARGIN.left} ${MARGIN.top})` });
    this.inner.append(...this.areas(shown), ...this.labels(shown), ...this.scales(wide, tall));
    this.cursor = svg("rect", { class: "cursor", width: 0, height: 0 });
    this.inner.append(this.cursor);
    const axes = this.axes.filter((j) => j >= 0).map((j) => this.columns[j]).join(" and ");
    return el("div", { class: "drawn", role: "group", tabindex: "0", id: "map", "aria-label": `Map of ${counted} over ${axes}`,
      "aria-describedby": "map-keys", onkeydown: (event) => this.moved(event), onclick: (event) => this.pointed(event) },
    picture(null, whole.width, whole.height, patterns(), this.inner),
    el("p", { id: "map-keys", class: "hint" }, `${counted}. Click into the map, or use the arrow keys, to see who gets what in a bin.`));
  }

  /** One path for each arm, with one more over those where others are tried. */
  areas(shown) {
    const groups = new Map();
    for (const index of shown) {
      const { arm, several } = this.leads[index], key = `${this.arms.indexOf(arm)} ${several}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(rectangle(this.bins[index], this.axes, ...this.size));
    }
    const edge = shown.length <= OUTLINED ? " outlined" : "";
    return [...groups].flatMap(([key, rectangles]) => {
      const [place, several] = key.split(" "), d = pathOf(rectangles);
      return fills(Number(place), several === "true").map((name, n) => svg("path", { class: n ? name : `${name}${edge}`, d }));
    });
  }

  labels(shown) {
    if (shown.length > LABELLED) return [];
    return shown.map((index) => {
      const { arm, several } = this.leads[index], place = this.arms.indexOf(arm);
      const { x, y, width, height } = rectangle(this.bins[index], this.axes, ...this.size);
      if (arm === null || width < 18 || height < 18) return null;
      const text = several ? letter(place).toLowerCase() : letter(place);
      return svg("text", { class: "on-arm", x: x + width / 2, y: y + height / 2 + 5, "text-anchor": "middle" }, text);
    }).filter(Boolean);
  }

  scales(wide, tall) {
    const [right, up] = this.axes, value = (one) => (typeof one === "number" ? figure(one, 3) : shortened(cell(one), 8));
    const name = (j) => shortened(this.columns[j], wide / 9);
    const found = ticks(this.bins, right, this.columns[right], wide < 400 ? 3 : 6, this.features).map(({ at, value: one }) =>
      svg("text", { class: "tick", x: at * wide, y: tall + 16, "text-anchor": at === 0 ? "start" : at === 1 ? "end" : "middle" }, value(one)));
    found.push(svg("text", { class: "axis", x: wide / 2, y: tall + 34, "text-anchor": "middle" }, `${name(right)} →`));
    if (up < 0) return found;
    for (const { at, value: one } of ticks(this.bins, up, this.columns[up], 6, this.features)) {
      found.push(svg("text", { class: "tick", x: -6, y: (1 - at) * tall + (at === 1 ? 10 : at === 0 ? 0 : 4), "text-anchor": "end" }, value(one)));
    }
    found.push(svg("text", { class: "axis", x: -MARGIN.left + 2, y: -9 }, `↑ ${name(up)}`));
    return found;
  }

  legend(shown) {
    const led = areas(this.bins, shown, this.axes, this.leads), several = shown.some((index) => this.leads[index].several && this.leads[index].arm !== null);
    const tied = shown.some((index) => this.leads[index].arm === null), none = shown.every((index) => this.leads[index].arm === null);
    const ahead = (arm) => (led.has(arm) ? `, ahead in ${percent(led.get(arm))} of the map` : ", ahead nowhere");
    return el("ul", { class: "legend", "aria-label": "Arms of the map" }, this.arms.map((arm, place) => el("li", {},
      swatch(place), ` ${letter(place)} = ${arm}`, none ? null : el("span", { class: "muted" }, ahead(arm)))),
    tied ? el("li", {}, swatch(-1), " striped without a letter: several have the same share, and none is ahead") : null,
    several ? el("li", {}, swatch(-1), " striped, with a small letter: others are tried, too") : null);
  }

  pointed(event) {
    const box = this.inner.ownerSVGElement.getBoundingClientRect();
    const x = (event.clientX - box.left - MARGIN.left) / this.size[0], y = (event.clientY - box.top - MARGIN.top) / this.size[1];
    if (x < 0 || x >= 1 || y < 0 || y >= 1) return;
    this.at[this.axes[0]] = x;
    if (this.axes[1] >= 0) this.at[this.axes[1]] = 1 - y;
    this.tell(true);
  }

  moved(event) {
    const [which, forward] = KEYS[event.key] ?? [], axis = this.axes[which] ?? -1;
    if (axis < 0) return;
    event.preventDefault();
    this.at = across(this.bins, this.at, axis, forward);
    this.tell(true);
  }

  /** Mark the bin that is chosen, and say what it holds. */
  tell(aloud) {
    const bin = this.bins[binAt(this.bins, this.at)];
    this.cursor.setAttribute("visibility", bin ? "visible" : "hidden");
    if (!bin) {
      this.chosen(null);
      if (aloud) announce(NOBODY);
      return;
    }
    for (const [name, value] of Object.entries(rectangle(bin, this.axes, ...this.size))) this.cursor.setAttribute(name, value);
    this.chosen(bin);
    if (aloud) announce(`${people(bin.where)}: ${shares(bin.arms)}`);
  }
}

/** What is said of a place without a bin: codes of no level, and numbers of people who have none. */
export const NOBODY = "Nobody can be at this place.";
