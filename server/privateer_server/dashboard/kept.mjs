// What was left in every version, for policies that narrow down a list.

import { el, more, svg } from "./dom.mjs";
import { table } from "./tables.mjs";
import { many } from "./words.mjs";

const ROWS = 40, ROW = 16;

/** By version: which entries are left, and which of them are played. */
export function keptChart(policies, width) {
  const all = [...new Set(policies.flatMap(({ active }) => active))].sort((one, other) => one - other);
  const last = (entry) => policies.findLastIndex(({ active }) => active.includes(entry)) + 1;
  const rows = [...all].sort((one, other) => last(other) - last(one) || one - other).slice(0, ROWS);
  const left = 56, each = Math.min(36, (width - left) / policies.length), height = rows.length * ROW + 20;
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `Of ${all.length}, ${policies.at(-1).active.length} left in version ${policies.length}` });
  rows.forEach((entry, n) => {
    drawing.append(svg("text", { class: "tick", x: left - 8, y: n * ROW + 12, "text-anchor": "end" }, String(entry)));
    policies.forEach(({ active, plays }, at) => {
      if (!active.includes(entry)) return;
      drawing.append(svg("rect", { class: plays?.[entry] ? "played" : "kept", x: left + at * each + 1, y: n * ROW + 1, width: Math.max(1, each - 2), height: ROW - 2 }));
    });
  });
  drawing.append(svg("text", { class: "tick", x: left, y: height - 4 }, "version 1"),
    svg("text", { class: "tick", x: left + policies.length * each, y: height - 4, "text-anchor": "end" }, String(policies.length)));
  return el("div", {}, el("h3", {}, "What was left in every version"), drawing,
    el("p", { class: "hint" }, `Strong: it was played. Faint: it was left, and not played.${all.length > ROWS ? ` The last ${ROWS} of ${all.length}.` : ""}`),
    more("kept-more", "As a table", table("kept", "The last version in which each was left", ["entry", "left until version", "play"],
      all.map((entry) => [String(entry), last(entry), many(policies.filter(({ plays }) => plays?.[entry]).length, "version")]))));
}
