// Bins of people: who gets what on a map, and what is known of a bin.

import { BinMap, NOBODY } from "./binmap.mjs";
import { intervalChart } from "./charts.mjs";
import { estimateRows } from "./decisions.mjs";
import { el, more, replace } from "./dom.mjs";
import { boundHint, spoken } from "./estimates.mjs";
import { swatch } from "./picture.mjs";
import { table } from "./tables.mjs";
import { confidence, letter, many, people, percent, shares } from "./words.mjs";
import { allOptions } from "./views.mjs";

const WIDE = 760, MAP_MAX = 640;
const MEANS = [{ name: "people", kind: "words" }, { name: "arm", kind: "words" }, { name: "mean", kind: "reward" }, { name: "low", kind: "low" }, { name: "high", kind: "high" }];

/** Bins of a policy, on the map that stays while its versions are looked at. */
export const bins = (shows, about) => about.map.show(shows, about);

/** Mean rewards by bin, as a table; the bin that is chosen on the map has its own drawn. The policy may divide these bins further. */
export function binMeans({ bins: rows, confidence: level }, { id }) {
  const cells = () => rows.flatMap(({ where, means }) => means.map(({ name, value, low, high }) => [people(where), name, value, low, high]));
  const title = `Mean rewards in the ${many(rows.length, "bin")} that reports are about, each with an interval of about ${confidence(level)}`;
  return more(`${id}-more`, title, () => table(id, title, MEANS, cells()));
}

/** The bin of an answer that holds a whole bin of a policy, with the confidence of its intervals; null if none does. */
export function meansOf(answer, { lower, upper }) {
  const holds = (one) => one.lower.length === lower.length && one.lower.every((low, j) => low <= lower[j] && one.upper[j] >= upper[j]);
  for (const { bins: known, confidence: level } of answer.parts.filter(({ kind }) => kind === "bin means")) {
    const found = known.find(holds);
    if (found) return { ...found, level };
  }
  return null;
}

/** A map with the bin that somebody chose beside it, and all bins as a table below. */
export class BinsView {
  constructor() {
    this.map = new BinMap((bin) => this.tell(bin));
    this.chosen = el("div", { class: "chosen" });
    this.listed = el("div");
    this.place = el("div", {}, el("div", { class: "beside" }, this.map.place, this.chosen), this.listed);
  }

  show(shows, { options, features, width, answer }) {
    Object.assign(this, { width, answer, options: allOptions(options, shows.bins.map(({ arms }) => arms)) });
    this.map.show(shows, this.options, features, width >= WIDE ? Math.min(MAP_MAX, width * 0.62) : width);
    replace(this.listed, more("bins-more", `The ${many(shows.bins.length, "bin")} of the policy as a table`, () => table("bins", "The arms of each bin of people, and how often they get them",
      ["people", "arms"], shows.bins.map(({ where, arms }) => [people(where), shares(arms)]))));
    return this.place;
  }

  /** Say what the bin that was chosen gives, and what is known of it. */
  tell(bin) {
    if (!bin) return replace(this.chosen, el("p", { class: "hint" }, NOBODY));
    const arms = Object.entries(bin.arms).sort((one, other) => other[1] - one[1]), place = (arm) => this.options.indexOf(arm);
    replace(this.chosen, el("h3", {}, "The bin that you chose"), el("p", {}, people(bin.where)),
      el("ul", { class: "plain" }, arms.map(([arm, share]) => el("li", {}, swatch(place(arm)), ` ${letter(place(arm))} = ${arm}: `, percent(share), " of its people"))),
      this.means(bin));
  }

  means(bin) {
    const found = meansOf(this.answer, bin);
    if (!found?.means.length) return el("p", { class: "muted" }, "Nothing is known of this bin by itself yet.");
    const rows = estimateRows(found.means), width = this.width >= WIDE ? Math.max(220, this.width * 0.34) : this.width;
    return [el("h4", {}, `Mean rewards there, each with an interval of about ${confidence(found.level)}`), intervalChart(spoken("Mean rewards", rows), rows, false, width),
      table("bin-estimates", "Estimates of the bin", MEANS.slice(1), found.means.map(({ name, value, low, high }) => [name, value, low, high])), boundHint(found.means)];
  }
}
