// The two screens of one experiment, what it found and how to change it: they ask for news, and hand what changed to the panels.

import { addressOf } from "./address.mjs";
import { answerPanel } from "./answer.mjs";
import { batchesPart } from "./batches.mjs";
import { announce, el, more, replace, section } from "./dom.mjs";
import { FindingsPanel } from "./findings.mjs";
import { commandsPanel, historyPanel, reportsPanel, spec as specTables } from "./panels.mjs";
import { accountInWords, isUnseen, reachable } from "./people.mjs";
import { PolicyPanel } from "./policy.mjs";
import { privacyPanel } from "./privacy.mjs";
import { progress } from "./charts.mjs";
import { expected, remembered } from "./rate.mjs";
import { Refused } from "./errors.mjs";
import { operator } from "./operator.mjs";
import { ask, follow, page } from "./service.mjs";
import { badge, endInWords, meaning, roundInWords, sinceInWords } from "./status.mjs";
import { verdict } from "./verdict.mjs";
import { count } from "./words.mjs";

const PARTS = [["answer", "Answer"], ["progress", "Progress"], ["findings", "Findings"], ["policy", "Policy"], ["reports", "Reports"],
  ["privacy", "Privacy"], ["history", "History"]];
const CHANGE = "change";

const MINUTE = 60_000;

/** Show an experiment in a place until `signal` ends. */
export function showExperiment(place, { name, part }, heard, signal) {
  const view = new View(place, name, part, signal);
  follow(page(name, "/events"), (stopped, news) => view.load(stopped, news), (news) => {
    heard(news);
    if (news.data) view.show(news.data, news.at);
    else if (news.error instanceof Refused) view.missing(news.error);
  }, signal);
  signal.addEventListener("abort", () => view.observer.disconnect());
  return { goTo: (wanted) => view.goTo(wanted) };
}

class View {
  constructor(place, name, part, signal) {
    Object.assign(this, { place, name, signal, wanted: part, known: null, parts: null });
    this.findings = new FindingsPanel();
    this.policy = new PolicyPanel((version) => ask(page(name, `/policy/${version}`)));
    this.operator = operator && new operator.OperatorPanel(name, signal, () => this.refresh());
    this.opened = null;
    this.head = el("div", { class: "head" }, el("h1", {}, name), el("p", { class: "muted" }, "Asking the server …"));
    this.body = el("div", { class: "panels" });
    place.append(this.head, this.body);
    // Drawings have the width that there is.
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(this.body);
  }

  /** Where it stands after news: its spec is another one only with another publication. */
  async standing(signal, news) {
    const own = news?.experiments.find(({ name }) => name === this.name);
    if (news === null && this.facts) return this.facts;
    if (own && this.facts?.digest === own.digest) return { ...this.facts, ...own };
    return ask(page(this.name), signal);
  }

  /** Where it stands; and everything else where the version or the status is another one. */
  async load(signal, news) {
    const facts = await this.standing(signal, news), stamp = `${facts.digest} ${facts.status} ${facts.accepts}`;
    if (this.known?.stamp === stamp) return { facts, rest: null };
    const [policy, answer, history, privacy] = await Promise.all(["/policy", "/answer", "/history", "/privacy"].map((part) => ask(page(this.name, part), signal)));
    return { facts, rest: { stamp, policy, answer, history, privacy, risk: null } };
  }

  /** The risk of every claim; it may take the server a second, and nothing else waits for it. */
  async loadRisk(known, signal) {
    try {
      known.risk = await ask(page(this.name, "/risk"), signal);
      if (this.known === known) replace(this.parts.privacy, privacyPanel(known.privacy, known.risk));
    } catch {
      // The claims are there without it; the next version asks again.
    }
  }

  /** Show at once what somebody has just changed here; the stream will say it anyway. */
  async refresh() {
    const found = await this.load(this.signal).catch(() => null);
    if (found) this.show(found, Date.now());
  }

  /** Since when the open round takes reports: operators are told. */
  async loadAge(at) {
    if (!operator) return;
    this.opened = await operator.roundAge(this.name, this.signal).catch(() => null);
    this.reports(at);
  }

  reports(at) {
    this.aged = at;
    if (this.parts) replace(this.parts.reports, reportsPanel(this.facts), batchesPart(this.facts, this.known.history.rounds, this.opened, at));
  }

  show({ facts, rest }, at) {
    const before = this.facts;
    this.facts = facts;
    if (rest) this.known = rest;
    if (!this.parts) this.build();
    this.counts = this.remember(at, facts.accepted);
    this.header(at);
    if (!before || JSON.stringify(facts.refused) !== JSON.stringify(before.refused) || facts.accepted !== before.accepted || (this.opened !== null && at - this.aged >= MINUTE)) {
      this.reports(at);
    }
    if (rest) {
      this.draw();
      this.loadRisk(rest, this.signal);
      this.loadAge(at);
    }
    if (before && before.version !== facts.version) announce(`Version ${count(facts.version)} is published.`);
    if (this.wanted) this.goTo(this.wanted);
  }

  /** The frame: navigation, a section for each part, and the screen on which to change it. */
  build() {
    this.parts = Object.fromEntries(PARTS.map(([id]) => [id, el("div")]));
    this.changing = { found: el("p", { class: "muted" }), forms: el("div", { id: operator ? "forms" : null }), rest: el("div") };
    const link = (id, title, kind = null) => el("li", {}, el("a", { class: kind, href: addressOf(this.name, id), onclick: () => { this.wanted = id; setTimeout(() => this.goTo(id)); } }, title));
    this.nav = el("nav", { "aria-label": "Parts of this page", class: "parts" }, el("ul", {}, PARTS.map(([id, title]) => link(id, title)), link(CHANGE, "Change it", "button")));
    this.back = el("p", {}, el("a", { href: addressOf(this.name) }, "← What it found"));
    this.change = section(CHANGE, "Change it", ...Object.values(this.changing));
    replace(this.place, el("p", {}, el("a", { href: "#/" }, "← All experiments")), this.head, this.nav, this.back, this.body);
    replace(this.body, PARTS.map(([id, title]) => section(id, title, this.parts[id])), this.change);
    this.turn(this.wanted);
  }

  /** Show the screen that has a part. */
  turn(part) {
    const changes = part === CHANGE;
    this.nav.hidden = changes;
    this.back.hidden = !changes;
    for (const one of this.body.children) one.hidden = (one === this.change) !== changes;
  }

  header(at) {
    const { facts, known } = this, found = expected(this.counts, reachable(facts.people)), end = endInWords(facts, found, at);
    const stamp = JSON.stringify([known.stamp, facts.people, facts.received, facts.draining_until, end]);
    if (stamp === this.headed) return;
    this.headed = stamp;
    replace(this.head, el("h1", {}, this.name, " ", badge(facts.status)),
      el("p", { class: "chips" }, ...[["algorithm", facts.algorithm], ["trust model", facts.model], ["version", count(facts.version)]]
        .map(([key, value]) => el("span", { class: "chip" }, el("span", { class: "muted" }, `${key} `), value))));
    replace(this.parts.progress, el("p", {}, `${meaning(facts.status)} ${sinceInWords(known?.answer.began, at)}`),
      progress("People counted or held, of all who are planned", facts.people.counted + facts.people.held.in_open_round, facts.people.planned),
      el("p", {}, accountInWords(facts.people)),
      facts.batch && !isUnseen(facts.people) ? progress("Reports of the open round", facts.received, facts.batch) : null,
      el("p", {}, roundInWords(facts, known?.policy.deadline, facts.status === "open" ? found : null, at)),
      end ? el("p", {}, end) : null);
  }

  draw() {
    const { facts, known } = this, width = this.width();
    replace(this.parts.answer, answerPanel(known.answer));
    this.findings.show(this.parts.findings, facts, known, width);
    this.policy.show(this.parts.policy, facts, known, width);
    replace(this.parts.privacy, privacyPanel(known.privacy, known.risk));
    replace(this.parts.history, historyPanel(known.history.rounds, width));
    const { found, forms, rest } = this.changing, commands = commandsPanel(this.name, facts.accepts);
    replace(found, `${known.answer.found.status === "learning" ? "So far: " : ""}${verdict(known.answer.conclusion)}.`);
    this.operator?.show(forms, facts);
    replace(rest, this.operator ? more("commands-more", "The same as commands", commands) : commands, more("spec", "What it was created from", specTables(facts.spec)));
  }

  width() {
    return Math.max(240, (this.parts?.findings.clientWidth || this.body.clientWidth));
  }

  resized() {
    if (!this.known || this.width() === this.drawn) return;
    this.drawn = this.width();
    requestAnimationFrame(() => this.draw());
  }

  /** Counts seen, over visits: the browser keeps them if it may. */
  remember(at, accepted) {
    const key = `privateer:${this.name}`;
    let points = this.counts ?? [];
    try {
      points = this.counts ?? JSON.parse(localStorage.getItem(key) ?? "[]");
      points = remembered(points, at, accepted);
      localStorage.setItem(key, JSON.stringify(points));
    } catch {
      points = remembered(this.counts ?? [], at, accepted);
    }
    return points;
  }

  goTo(part) {
    this.wanted = this.known ? "" : part;
    if (this.parts) this.turn(part);
    const title = part && document.getElementById(`${part}-title`);
    if (!title) return;
    title.scrollIntoView({ block: "start" });
    title.focus({ preventScroll: true });
  }

  missing({ status, message }) {
    if (this.known && status !== 404 && status !== 410) return;
    const why = status === 410 ? "It was deleted, and its name is never used again." : status === 404 ? "This server has no such experiment." : message;
    this.parts = this.known = this.headed = null;
    replace(this.place, el("p", {}, el("a", { href: "#/" }, "← All experiments")), el("h1", {}, this.name), el("p", { class: "panel" }, why));
  }
}
