// What people get: the policy of any version, drawn by its shape.

import { BinMap, binTable, inWords, NOBODY, patterns, swatch } from "./binmap.mjs";
import { intervals, shareBar } from "./charts.mjs";
import { keptChart } from "./kept.mjs";
import { el, facts as pairs, more, replace, svg } from "./dom.mjs";
import { armsOf, groupsOf, inBounds, plainTables, policyShape, stateBin, stateEstimates } from "./shapes.mjs";
import { table } from "./tables.mjs";
import { capital, cell, count, figure, letter, many, people, percent, spaced } from "./words.mjs";

const PAUSE = 150, KEPT = 64, BARS = 60;

/** The panel with its slider; `fetchVersion(n)` gets an earlier policy. */
export class PolicyPanel {
  constructor(fetchVersion) {
    Object.assign(this, { fetchVersion, earlier: new Map(), version: null, timer: null });
    this.chosen = el("div", { class: "chosen" });
    this.map = new BinMap((bin) => this.tell(bin));
    this.drawing = el("div");
    this.controls = el("div", { class: "controls" });
    this.said = el("p", { class: "muted", role: "status" });
  }

  /** Show what is known now; the slider stays where it is if somebody looks at an earlier version. */
  show(place, facts, known, width) {
    Object.assign(this, { facts, known, width });
    const newest = facts.version, follows = this.version === null || this.version === this.newest;
    this.newest = newest;
    if (follows || this.version > newest) this.version = newest;
    this.slider();
    if (!place.contains(this.drawing)) replace(place, this.controls, this.said, this.drawing);
    this.draw();
  }

  /** The slider; it stays in its place while somebody moves it. */
  slider() {
    const words = this.version === this.newest ? `${count(this.version)}, the newest` : `${count(this.version)} of ${count(this.newest)}`;
    if (!this.controls.hasChildNodes()) {
      this.shown = el("output", { for: "version" });
      this.input = el("input", { type: "range", id: "version", min: "1", step: "1", oninput: () => this.slid() });
      this.controls.append(el("label", {}, "Version ", this.input, this.shown));
    }
    this.controls.hidden = this.newest < 2;
    this.input.max = String(this.newest);
    this.input.value = String(this.version);
    this.input.setAttribute("aria-valuetext", words);
    this.shown.textContent = words;
  }

  slid() {
    this.version = Number(this.input.value);
    this.slider();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), PAUSE);
  }

  async draw() {
    const version = this.version;
    try {
      const published = version === this.newest ? this.known.policy : await this.of(version);
      if (version === this.version) this.put(published.policy);
    } catch (error) {
      if (version === this.version) this.said.textContent = `Version ${count(version)} cannot be shown: ${error.message}`;
    }
  }

  async of(version) {
    if (!this.earlier.has(version)) {
      const fetched = await this.fetchVersion(version);
      if (this.earlier.size >= KEPT) this.earlier.delete(this.earlier.keys().next().value);
      this.earlier.set(version, fetched);
    }
    return this.earlier.get(version);
  }

  put(policy) {
    const shape = policyShape(policy), arms = armsOf(this.facts.spec, policy);
    this.said.textContent = this.version === this.newest ? "" : `This is what people got under version ${count(this.version)}. Estimates below are the newest.`;
    if (shape === "bins") this.putMap(policy, arms);
    else replace(this.drawing, DRAWN[shape](policy, arms, this.width));
    if (shape === "kept") this.putKept();
  }

  putMap(policy, arms) {
    const wide = this.width >= 760;
    if (!this.drawing.contains(this.map.place)) replace(this.drawing, el("div", { class: "beside" }, this.map.place, this.chosen), el("div"));
    this.arms = arms;
    this.map.show(policy, arms, this.facts.spec?.context?.features, wide ? Math.min(640, this.width * 0.62) : this.width);
    replace(this.drawing.lastChild, more("bins-more", `${many(policy.bins.length, "bin")} as a table`, () => binTable(policy.bins, this.facts.spec?.context?.features)));
  }

  /** Draw what was left in every version, once all are there. */
  async putKept() {
    if (this.newest > KEPT) return;
    const place = el("div"), policies = [];
    this.drawing.append(place);
    for (let version = 1; version <= this.newest; version++) {
      policies.push(version === this.newest ? this.known.policy.policy : (await this.of(version)).policy);
    }
    replace(place, keptChart(policies, this.width));
  }

  /** Say what the bin that was chosen gives, and what is known of it. */
  tell(bin) {
    if (!bin) return replace(this.chosen, el("p", { class: "hint" }, NOBODY));
    const arms = Object.entries(bin.arms).sort((one, other) => other[1] - one[1]);
    const own = this.facts.accepted ? stateBin(this.known.state.state, bin) : null, estimates = own && inBounds(stateEstimates(own.arms), this.facts.spec?.reward);
    const width = this.width >= 760 ? Math.max(220, this.width * 0.34) : this.width;
    replace(this.chosen, el("h3", {}, "The bin that you chose"), el("p", {}, people(bin.where, this.facts.spec?.context?.features)),
      el("ul", { class: "plain" }, arms.map(([arm, share]) => el("li", {}, swatch(this.arms.indexOf(arm)), ` ${letter(this.arms.indexOf(arm))} = ${arm}: `, percent(share), " of its people"))),
      estimates ? [el("h4", {}, "Mean rewards there, each with an interval of about 95 %"), intervals(`Mean rewards: ${estimates.map((row) => `${row.label} ${figure(row.value)}, from ${figure(row.low)} to ${figure(row.high)}`).join("; ")}`, estimates, false, width),
        table("bin-estimates", "Estimates of the bin", ["arm", "mean", "low", "high"], estimates.map(({ label, value, low, high }) => [label, value, low, high])),
        estimates.some(({ bounded }) => bounded) ? el("p", { class: "hint" }, "An estimate beyond the bounds of rewards is drawn at the bound: no mean can be there.") : null]
        : el("p", { class: "muted" }, "Nothing is known of this bin by itself yet."));
  }
}

function shares({ arms }, order, width) {
  return groups([{ name: "Everybody", arms }], order, width);
}

function groups(rows, order, width) {
  const letters = order.map((_, place) => letter(place));
  const bars = (some) => some.map(({ name, arms }) => el("div", { class: "group" }, el("h3", {}, name),
    shareBar(`${name}: ${inWords(arms)}`, arms, order, letters, width)));
  return [el("ul", { class: "legend", "aria-label": "Arms" }, order.map((arm, place) => el("li", {}, swatch(place), ` ${letters[place]} = ${arm}`))),
    svg("svg", { width: 0, height: 0, class: "defs", "aria-hidden": "true" }, patterns()),
    ...bars(rows.slice(0, BARS)),
    rows.length > BARS ? more("shares-others", `${count(rows.length - BARS)} more of ${many(rows.length, "group")}`, () => bars(rows.slice(BARS))) : null,
    more("shares-more", "As a table", table("shares", "The share of people who get each arm", ["people", ...order],
      rows.map(({ name, arms }) => [name, ...order.map((arm) => (arms[arm] === undefined ? "–" : percent(arms[arm], 1)))])))];
}

function numbers({ arms, ...rest }) {
  const names = [...new Set(Object.values(arms).flatMap(Object.keys))];
  return [el("p", {}, "What each arm is expected to bring, by what is known of a person. Each device picks its arm from these numbers."),
    table("numbers", "Numbers of each arm", ["name", ...Object.keys(arms)], names.map((name) => [name, ...Object.values(arms).map((one) => one[name] ?? null)])), plain(rest)];
}

function plain(policy) {
  const { plain: words, tables } = plainTables(policy);
  return [pairs(words.filter(([key]) => key !== "version" && key !== "algorithm").map(([key, value]) => [capital(spaced(key)), cell(value)])),
    tables.map(({ title, columns, rows }, n) => table(`policy-${n}`, capital(spaced(title)), columns, rows))];
}

const DRAWN = { shares, kept: plain, groups: (policy, order, width) => groups(groupsOf(policy), order, width), numbers, other: plain };
