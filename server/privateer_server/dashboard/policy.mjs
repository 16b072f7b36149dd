// What people get: the policy of any version, drawn by the kind of what it shows.

import { BinsView } from "./bins.mjs";
import { el, replace } from "./dom.mjs";
import { render } from "./render.mjs";
import { makeKnownFacts } from "./tables.mjs";
import { formatNumber } from "./words.mjs";

const PAUSE = 150, KEPT = 64;

/** The panel with its slider; `fetchVersion(n)` gets an earlier policy. */
export class PolicyPanel {
  constructor(fetchVersion) {
    Object.assign(this, { fetchVersion, earlier: new Map(), version: null, timer: null });
    this.map = new BinsView();
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
    this.updateSlider();
    if (!place.contains(this.drawing)) replace(place, this.controls, this.said, this.drawing);
    this.draw();
  }

  /** The slider; it stays in its place while somebody moves it. */
  updateSlider() {
    const words = this.version === this.newest ? `${formatNumber(this.version)}, the newest` : `${formatNumber(this.version)} of ${formatNumber(this.newest)}`;
    if (!this.controls.hasChildNodes()) {
      this.shown = el("output", { for: "version" });
      this.input = el("input", { type: "range", id: "version", min: "1", step: "1", oninput: () => this.moveSlider() });
      this.controls.append(el("label", {}, "Version ", this.input, this.shown));
    }
    this.controls.hidden = this.newest < 2;
    this.input.max = String(this.newest);
    this.input.value = String(this.version);
    this.input.setAttribute("aria-valuetext", words);
    this.shown.textContent = words;
  }

  moveSlider() {
    this.version = Number(this.input.value);
    this.updateSlider();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), PAUSE);
  }

  async draw() {
    const version = this.version;
    try {
      const published = version === this.newest ? this.known.policy : await this.fetchPolicy(version);
      if (version === this.version) this.drawPolicy(published.policy);
    } catch (error) {
      if (version === this.version) this.said.textContent = `Version ${formatNumber(version)} cannot be shown: ${error.message}`;
    }
  }

  async fetchPolicy(version) {
    if (!this.earlier.has(version)) {
      const fetched = await this.fetchVersion(version);
      if (this.earlier.size >= KEPT) this.earlier.delete(this.earlier.keys().next().value);
      this.earlier.set(version, fetched);
    }
    return this.earlier.get(version);
  }

  drawPolicy({ shows, facts }) {
    const { spec } = this.facts;
    this.said.textContent = this.version === this.newest ? "" : `This is what people got under version ${formatNumber(this.version)}. Estimates below are the newest.`;
    replace(this.drawing, render(shows, { id: "policy", width: this.width, options: spec?.experiment?.arms ?? [], features: spec?.context?.features,
      answer: this.known.answer.result, map: this.map, versions: this.newest > KEPT ? undefined : () => this.fetchAllShown() }), makeKnownFacts(facts));
  }

  /** What the policy showed in every version. */
  async fetchAllShown() {
    const shown = [];
    for (let version = 1; version < this.newest; version++) shown.push((await this.fetchPolicy(version)).policy.shows);
    return [...shown, this.known.policy.policy.shows];
  }
}
