// One way to draw: a picture has a name, and every option the same colour wherever it is drawn.

import { svg } from "./dom.mjs";

const COLOURS = 8;

/**
 * A drawing.
 *
 * @param {string|null} label what it shows, for those who do not see it; null where something around it says that
 * @param {number} width in pixels
 */
export function picture(label, width, height, ...children) {
  const named = label === null ? { "aria-hidden": "true" } : { role: "img", "aria-label": label };
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, ...named }, ...children);
}

/**
 * What the surface of an option is filled with, one class over the other; there are eight colours, and dots after them.
 *
 * @param {number} place of the option in the spec; -1: none is ahead
 * @param {boolean} several whether others are tried, too
 */
export function fills(place, several = false) {
  if (place < 0) return ["arm plain", "hatched"];
  return [`arm arm-${place % COLOURS}`, ...(place >= COLOURS ? ["dots"] : []), ...(several ? ["hatched"] : [])];
}

/** A sample of an option's colour. */
export function swatch(place) {
  return svg("svg", { class: "swatch", width: 16, height: 16, "aria-hidden": "true" },
    fills(place).map((name) => svg("rect", { class: name, width: 16, height: 16 })));
}

/** The patterns that drawings are filled with: one of each on the page is enough. */
export function patterns() {
  const hatch = svg("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { class: "stripe", width: 3, height: 7 }));
  const dots = svg("pattern", { id: "dot", width: 8, height: 8, patternUnits: "userSpaceOnUse" }, svg("circle", { class: "dot", cx: 4, cy: 4, r: 1.6 }));
  return svg("defs", {}, hatch, dots);
}
