// The map of a policy that has bins: who gets what, over one or two columns of a context.

import { moveAcross, measureAreas, findBin, cutColumns, firstAxes, isScale, findLeader, makePath, rectangle, sliceBins, makeTicks } from "./boxes.mjs";
import { announce, el, replace, svg } from "./dom.mjs";
import { fills, patterns, picture, swatch } from "./picture.mjs";
import { formatCell, formatFigure, armLetter, formatCount, describePeople, formatPercent, describeShares, shorten } from "./words.mjs";

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
    Object.assign(this, { bins, columns, arms, features, width, leads: bins.map(({ arms: shares }) => findLeader(shares)) });
    const dimension = this.bins[0].lower.length;
    if (this.at?.length !== dimension) {
      this.axes = firstAxes(this.bins, this.columns, features);
      this.at = Array.from({ length: dimension }, (_, j) => (dimension <= 2 || isScale(this.bins, j, this.columns[j], features) ? 0.5 : 0.25));
    }
    this.draw();
  }

  draw() {
    const free = this.axes.filter((j) => j >= 0), shownIndices = sliceBins(this.bins, free, this.at);
    const countText = shownIndices.length === this.bins.length ? formatCount(shownIndices.length, "bin") : `${formatCount(shownIndices.length, "bin")} of ${formatCell(this.bins.length)}`;
    replace(this.place, this.makeControls(), this.makeDrawing(shownIndices, countText), this.makeLegend(shownIndices));
    this.showChosen(false);
  }

  /** Which columns are drawn, and where the slice is along the others that are cut. */
  makeControls() {
    const dimension = this.at.length;
    if (dimension <= 2) return null;
    const columns = this.at.map((_, j) => j), free = this.axes;
    const choose = (index, label) => el("label", {}, `${label} `, el("select", { id: `axis-${index}`, onchange: (event) => {
      this.axes[index] = Number(event.target.value);
      this.draw();
    } }, index === 1 ? el("option", { value: "-1", selected: free[1] < 0 }, "nothing") : null,
    columns.filter((j) => j !== free[1 - index]).map((j) => el("option", { value: String(j), selected: j === free[index] }, this.columns[j]))));
    const others = cutColumns(this.bins).filter((j) => !free.includes(j));
    return el("div", { class: "controls" }, choose(0, "To the right"), choose(1, "Upwards"), others.map((j) => (isScale(this.bins, j, this.columns[j], this.features) ? this.makeSlider(j) : this.makeLevelMenu(j))));
  }

  /** A column that says yes or no, or the bit of a level. */
  makeLevelMenu(j) {
    return el("label", {}, this.columns[j], el("select", { id: `slice-${j}`, onchange: (event) => {
      this.at[j] = Number(event.target.value);
      this.draw();
    } }, [["0.25", "no"], ["0.75", "yes"]].map(([value, text]) => el("option", { value, selected: this.at[j] >= 0.5 === (text === "yes") }, text))));
  }

  makeSlider(j) {
    const output = el("output", {}, formatPercent(this.at[j]));
    return el("label", {}, `${this.columns[j]} at `, el("input", { type: "range", id: `slice-${j}`, min: "0", max: "1", step: "0.01",
      value: String(this.at[j]), "aria-valuetext": `${formatPercent(this.at[j])} of its range`,
      onchange: (event) => { this.at[j] = Number(event.target.value); this.draw(); },
      oninput: (event) => { output.textContent = formatPercent(Number(event.target.value)); } }), output);
  }

  makeDrawing(indices, counted) {
    const wide = Math.max(120, this.width - MARGIN.left - MARGIN.right);
    const tall = this.axes[1] < 0 ? 72 : Math.min(wide, 460);
    this.size = [wide, tall];
    const size = { width: wide + MARGIN.left + MARGIN.right, height: tall + MARGIN.top + MARGIN.bottom };
    this.inner = svg("g", { transform: `translate(${MARGIN.left} ${MARGIN.top})` });
    this.inner.append(...this.drawAreas(indices), ...this.drawLabels(indices), ...this.drawScales(wide, tall));
    this.cursor = svg("rect", { class: "cursor", width: 0, height: 0 });
    this.inner.append(this.cursor);
    const axes = this.axes.filter((j) => j >= 0).map((j) => this.columns[j]).join(" and ");
    return el("div", { class: "drawn", role: "group", tabindex: "0", id: "map", "aria-label": `Map of ${counted} over ${axes}`,
      "aria-describedby": "map-keys", onkeydown: (event) => this.chooseByKey(event), onclick: (event) => this.chooseAtPointer(event) },
    picture(null, size.width, size.height, patterns(), this.inner),
    el("p", { id: "map-keys", class: "hint" }, `${counted}. Click into the map, or use the arrow keys, to see who gets what in a bin.`));
  }

  /** One path for each arm, with one more over those where others are tried. */
  drawAreas(indices) {
    const groups = new Map();
    for (const index of indices) {
      const { arm, several } = this.leads[index], key = `${this.arms.indexOf(arm)} ${several}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(rectangle(this.bins[index], this.axes, ...this.size));
    }
    const edge = indices.length <= OUTLINED ? " outlined" : "";
    return [...groups].flatMap(([key, rectangles]) => {
      const [place, several] = key.split(" "), d = makePath(rectangles);
      return fills(Number(place), several === "true").map((name, n) => svg("path", { class: n ? name : `${name}${edge}`, d }));
    });
  }

  drawLabels(indices) {
    if (indices.length > LABELLED) return [];
    return indices.map((index) => {
      const { arm, several } = this.leads[index], place = this.arms.indexOf(arm);
      const { x, y, width, height } = rectangle(this.bins[index], this.axes, ...this.size);
      if (arm === null || width < 18 || height < 18) return null;
      const text = several ? armLetter(place).toLowerCase() : armLetter(place);
      return svg("text", { class: "on-arm", x: x + width / 2, y: y + height / 2 + 5, "text-anchor": "middle" }, text);
    }).filter(Boolean);
  }

  drawScales(wide, tall) {
    const [right, up] = this.axes, value = (number) => (typeof number === "number" ? formatFigure(number, 3) : shorten(formatCell(number), 8));
    const name = (j) => shorten(this.columns[j], wide / 9);
    const labels = makeTicks(this.bins, right, this.columns[right], wide < 400 ? 3 : 6, this.features).map(({ at: position, value: one }) =>
      svg("text", { class: "tick", x: position * wide, y: tall + 16, "text-anchor": position === 0 ? "start" : position === 1 ? "end" : "middle" }, value(one)));
    labels.push(svg("text", { class: "axis", x: wide / 2, y: tall + 34, "text-anchor": "middle" }, `${name(right)} →`));
    if (up < 0) return labels;
    for (const { at, value: one } of makeTicks(this.bins, up, this.columns[up], 6, this.features)) {
      labels.push(svg("text", { class: "tick", x: -6, y: (1 - at) * tall + (at === 1 ? 10 : at === 0 ? 0 : 4), "text-anchor": "end" }, value(one)));
    }
    labels.push(svg("text", { class: "axis", x: -MARGIN.left + 2, y: -9 }, `↑ ${name(up)}`));
    return labels;
  }

  makeLegend(indices) {
    const led = measureAreas(this.bins, indices, this.axes, this.leads), several = indices.some((index) => this.leads[index].several && this.leads[index].arm !== null);
    const tied = indices.some((index) => this.leads[index].arm === null), none = indices.every((index) => this.leads[index].arm === null);
    const ahead = (arm) => (led.has(arm) ? `, ahead in ${formatPercent(led.get(arm))} of the map` : ", ahead nowhere");
    return el("ul", { class: "legend", "aria-label": "Arms of the map" }, this.arms.map((arm, place) => el("li", {},
      swatch(place), ` ${armLetter(place)} = ${arm}`, none ? null : el("span", { class: "muted" }, ahead(arm)))),
    tied ? el("li", {}, swatch(-1), " striped without a letter: several have the same share, and none is ahead") : null,
    several ? el("li", {}, swatch(-1), " striped, with a small letter: others are tried, too") : null);
  }

  chooseAtPointer(event) {
    const box = this.inner.ownerSVGElement.getBoundingClientRect();
    const x = (event.clientX - box.left - MARGIN.left) / this.size[0], y = (event.clientY - box.top - MARGIN.top) / this.size[1];
    if (x < 0 || x >= 1 || y < 0 || y >= 1) return;
    this.at[this.axes[0]] = x;
    if (this.axes[1] >= 0) this.at[this.axes[1]] = 1 - y;
    this.showChosen(true);
  }

  chooseByKey(event) {
    const [index, forward] = KEYS[event.key] ?? [], axis = this.axes[index] ?? -1;
    if (axis < 0) return;
    event.preventDefault();
    this.at = moveAcross(this.bins, this.at, axis, forward);
    this.showChosen(true);
  }

  /** Mark the bin that is chosen, and say what it holds. */
  showChosen(aloud) {
    const bin = this.bins[findBin(this.bins, this.at)];
    this.cursor.setAttribute("visibility", bin ? "visible" : "hidden");
    if (!bin) {
      this.chosen(null);
      if (aloud) announce(NOBODY);
      return;
    }
    for (const [name, value] of Object.entries(rectangle(bin, this.axes, ...this.size))) this.cursor.setAttribute(name, value);
    this.chosen(bin);
    if (aloud) announce(`${describePeople(bin.where)}: ${describeShares(bin.arms)}`);
  }
}

/** What is said of a place without a bin: codes of no level, and numbers of people who have none. */
export const NOBODY = "Nobody can be at this place.";
