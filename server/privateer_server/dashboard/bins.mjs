// Bins of people: who gets what on a map, and what is known of a bin.

import { BinMap, NOBODY } from "./binmap.mjs";
import { drawIntervals } from "./charts.mjs";
import { makeEstimateRows } from "./decisions.mjs";
import { el, makeDetails, replace } from "./dom.mjs";
import { makeBoundHint, describeRows } from "./estimates.mjs";
import { swatch } from "./picture.mjs";
import { makeTable } from "./tables.mjs";
import { formatConfidence, armLetter, formatCount, describePeople, formatPercent, describeShares } from "./words.mjs";
import { listOptions } from "./views.mjs";

const WIDE = 760, MAP_MAX = 640;
const MEANS = [{ name: "people", kind: "words" }, { name: "arm", kind: "words" }, { name: "mean", kind: "reward" }, { name: "low", kind: "low" }, { name: "high", kind: "high" }];

/** Bins of a policy, on the map that stays while its versions are looked at. */
export const bins = (policy, about) => about.map.show(policy, about);

/** Mean rewards by bin, as a table; the bin that is chosen on the map has its own drawn. The policy may divide these bins further. */
export function binMeans({ bins: rows, confidence: level }, { id }) {
  const cells = () => rows.flatMap(({ where, means }) => means.map(({ name, value, low, high }) => [describePeople(where), name, value, low, high]));
  const title = `Mean rewards in the ${formatCount(rows.length, "bin")} that reports are about, each with an interval of about ${formatConfidence(level)}`;
  return makeDetails(`${id}-more`, title, () => makeTable(id, title, MEANS, cells()));
}

/** The bin of an answer that holds a whole bin of a policy, with the confidence of its intervals; null if none does. */
export function findMeans(answer, { lower, upper }) {
  const contains = (candidate) => candidate.lower.length === lower.length && candidate.lower.every((low, j) => low <= lower[j] && candidate.upper[j] >= upper[j]);
  for (const { bins: known, confidence: level } of answer.parts.filter(({ kind }) => kind === "bin means")) {
    const match = known.find(contains);
    if (match) return { ...match, level };
  }
  return null;
}

/** A map with the bin that somebody chose beside it, and all bins as a table below. */
export class BinsView {
  constructor() {
    this.map = new BinMap((bin) => this.showChosen(bin));
    this.chosen = el("div", { class: "chosen" });
    this.listed = el("div");
    this.place = el("div", {}, el("div", { class: "beside" }, this.map.place, this.chosen), this.listed);
  }

  show(shows, { options, features, width, answer }) {
    Object.assign(this, { width, answer, options: listOptions(options, shows.bins.map(({ arms }) => arms)) });
    this.map.show(shows, this.options, features, width >= WIDE ? Math.min(MAP_MAX, width * 0.62) : width);
    replace(this.listed, makeDetails("bins-more", `The ${formatCount(shows.bins.length, "bin")} of the policy as a table`, () => makeTable("bins", "The arms of each bin of people, and how often they get them",
      ["people", "arms"], shows.bins.map(({ where, arms }) => [describePeople(where), describeShares(arms)]))));
    return this.place;
  }

  /** Say what the bin that was chosen gives, and what is known of it. */
  showChosen(bin) {
    if (!bin) return replace(this.chosen, el("p", { class: "hint" }, NOBODY));
    const arms = Object.entries(bin.arms).sort((first, second) => second[1] - first[1]), place = (arm) => this.options.indexOf(arm);
    replace(this.chosen, el("h3", {}, "The bin that you chose"), el("p", {}, describePeople(bin.where)),
      el("ul", { class: "plain" }, arms.map(([arm, share]) => el("li", {}, swatch(place(arm)), ` ${armLetter(place(arm))} = ${arm}: `, formatPercent(share), " of its people"))),
      this.drawMeans(bin));
  }

  drawMeans(bin) {
    const match = findMeans(this.answer, bin);
    if (!match?.means.length) return el("p", { class: "muted" }, "Nothing is known of this bin by itself yet.");
    const rows = makeEstimateRows(match.means), width = this.width >= WIDE ? Math.max(220, this.width * 0.34) : this.width;
    return [el("h4", {}, `Mean rewards there, each with an interval of about ${formatConfidence(match.level)}`), drawIntervals(describeRows("Mean rewards", rows), rows, false, width),
      makeTable("bin-estimates", "Estimates of the bin", MEANS.slice(1), match.means.map(({ name, value, low, high }) => [name, value, low, high])), makeBoundHint(match.means)];
  }
}
