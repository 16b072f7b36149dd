// The two screens of one experiment, what it found and how to change it: they ask for news, and hand what changed to the panels.

import { formatAddress } from "./address.mjs";
import { answerPanel } from "./answer.mjs";
import { batchesPart } from "./batches.mjs";
import { announce, el, makeDetails, replace, makeSection } from "./dom.mjs";
import { FindingsPanel } from "./findings.mjs";
import { commandsPanel, historyPanel, reportsPanel, drawSpec as specTables } from "./panels.mjs";
import { describeAccount, isUnseen, countReachable } from "./people.mjs";
import { PolicyPanel } from "./policy.mjs";
import { privacyPanel } from "./privacy.mjs";
import { makeProgressBar } from "./charts.mjs";
import { estimateEnd, addPoint } from "./rate.mjs";
import { Refused } from "./errors.mjs";
import { operator } from "./operator.mjs";
import { ask, follow, makeAddress } from "./service.mjs";
import { makeBadge, describeEnd, describeStatus, describeRound, describeStart } from "./status.mjs";
import { verdict } from "./verdict.mjs";
import { formatNumber } from "./words.mjs";

const PARTS = [["answer", "Answer"], ["progress", "Progress"], ["findings", "Findings"], ["policy", "Policy"], ["reports", "Reports"],
  ["privacy", "Privacy"], ["history", "History"]];
const CHANGE = "change";

const MINUTE = 60_000;

/** Show an experiment in a place until `signal` ends. */
export function showExperiment(place, { name, part }, noteAnswer, signal) {
  const view = new View(place, name, part, signal);
  follow((stopped) => view.load(stopped), (news) => {
    noteAnswer(news);
    if (news.data) view.show(news.data, news.at);
    else if (news.error instanceof Refused) view.showMissing(news.error);
  }, signal);
  signal.addEventListener("abort", () => view.observer.disconnect());
  return { goTo: (part) => view.goTo(part) };
}

class View {
  constructor(place, name, part, signal) {
    Object.assign(this, { place, name, signal, wanted: part, known: null, parts: null });
    this.findings = new FindingsPanel();
    this.policy = new PolicyPanel((version) => ask(makeAddress(name, `/policy/${version}`)));
    this.operator = operator && new operator.OperatorPanel(name, signal, () => this.refresh());
    this.opened = null;
    this.head = el("div", { class: "head" }, el("h1", {}, name), el("p", { class: "muted" }, "Asking the server …"));
    this.body = el("div", { class: "panels" });
    place.append(this.head, this.body);
    // Drawings have the width that there is.
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.body);
  }

  /** Where it stands; and everything else where the version or the status is another one. */
  async load(signal) {
    const facts = await ask(makeAddress(this.name), signal), stamp = `${facts.digest} ${facts.status} ${facts.allowed_changes}`;
    if (this.known?.stamp === stamp) return { facts, rest: null };
    const [policy, answer, history, privacy] = await Promise.all(["/policy", "/answer", "/history", "/privacy"].map((part) => ask(makeAddress(this.name, part), signal)));
    return { facts, rest: { stamp, policy, answer, history, privacy, risk: null } };
  }

  /** The risk of every claim; it may take the server a second, and nothing else waits for it. */
  async loadRisk(known, signal) {
    try {
      known.risk = await ask(makeAddress(this.name, "/risk"), signal);
      if (this.known === known) replace(this.parts.privacy, privacyPanel(known.privacy, known.risk));
    } catch {
      // The claims are there without it; the next version asks again.
    }
  }

  /** Show at once what somebody has just changed here; the next answer will say it anyway. */
  async refresh() {
    const loaded = await this.load(this.signal).catch(() => null);
    if (loaded) this.show(loaded, Date.now());
  }

  /** Since when the open round takes reports: operators are told. */
  async loadAge(time) {
    if (!operator) return;
    this.opened = await operator.fetchRoundStart(this.name, this.signal).catch(() => null);
    this.drawReports(time);
  }

  drawReports(time) {
    this.aged = time;
    if (this.parts) replace(this.parts.reports, reportsPanel(this.facts), batchesPart(this.facts, this.known.history.rounds, this.opened, time));
  }

  show({ facts, rest }, time) {
    const oldFacts = this.facts;
    this.facts = facts;
    if (rest) this.known = rest;
    if (!this.parts) this.build();
    this.counts = this.addCount(time, facts.accepted);
    this.drawHeader(time);
    if (!oldFacts || JSON.stringify(facts.refused) !== JSON.stringify(oldFacts.refused) || facts.accepted !== oldFacts.accepted || (this.opened !== null && time - this.aged >= MINUTE)) {
      this.drawReports(time);
    }
    if (rest) {
      this.draw();
      this.loadRisk(rest, this.signal);
      this.loadAge(time);
    }
    if (oldFacts && oldFacts.version !== facts.version) announce(`Version ${formatNumber(facts.version)} is published.`);
    if (this.wanted) this.goTo(this.wanted);
  }

  /** The frame: navigation, a section for each part, and the screen on which to change it. */
  build() {
    this.parts = Object.fromEntries(PARTS.map(([id]) => [id, el("div")]));
    this.changing = { verdict: el("p", { class: "muted" }), forms: el("div", { id: operator ? "forms" : null }), rest: el("div") };
    const link = (id, title, kind = null) => el("li", {}, el("a", { class: kind, href: formatAddress(this.name, id), onclick: () => { this.wanted = id; setTimeout(() => this.goTo(id)); } }, title));
    this.nav = el("nav", { "aria-label": "Parts of this page", class: "parts" }, el("ul", {}, PARTS.map(([id, title]) => link(id, title)), link(CHANGE, "Change it", "button")));
    this.back = el("p", {}, el("a", { href: formatAddress(this.name) }, "← What it found"));
    this.change = makeSection(CHANGE, "Change it", ...Object.values(this.changing));
    replace(this.place, el("p", {}, el("a", { href: "#/" }, "← All experiments")), this.head, this.nav, this.back, this.body);
    replace(this.body, PARTS.map(([id, title]) => makeSection(id, title, this.parts[id])), this.change);
    this.showScreen(this.wanted);
  }

  /** Show the screen that has a part. */
  showScreen(part) {
    const changes = part === CHANGE;
    this.nav.hidden = changes;
    this.back.hidden = !changes;
    for (const one of this.body.children) one.hidden = (one === this.change) !== changes;
  }

  drawHeader(time) {
    const { facts, known } = this, estimate = estimateEnd(this.counts, countReachable(facts.people)), end = describeEnd(facts, estimate, time);
    const stamp = JSON.stringify([known.stamp, facts.people, facts.received, facts.draining_until, end]);
    if (stamp === this.headed) return;
    this.headed = stamp;
    replace(this.head, el("h1", {}, this.name, " ", makeBadge(facts.status)),
      el("p", { class: "chips" }, ...[["algorithm", facts.algorithm], ["trust model", facts.model], ["version", formatNumber(facts.version)]]
        .map(([key, value]) => el("span", { class: "chip" }, el("span", { class: "muted" }, `${key} `), value))));
    replace(this.parts.progress, el("p", {}, `${describeStatus(facts.status)} ${describeStart(known?.answer.began, time)}`),
      makeProgressBar("People counted or held, of all who are planned", facts.people.counted + facts.people.held.in_open_round, facts.people.planned),
      el("p", {}, describeAccount(facts.people)),
      facts.batch_size && !isUnseen(facts.people) ? makeProgressBar("Reports of the open round", facts.received, facts.batch_size) : null,
      el("p", {}, describeRound(facts, known?.policy.deadline, facts.status === "open" ? estimate : null, time)),
      end ? el("p", {}, end) : null);
  }

  draw() {
    const { facts, known } = this, width = this.measureWidth();
    replace(this.parts.answer, answerPanel(known.answer));
    this.findings.show(this.parts.findings, facts, known, width);
    this.policy.show(this.parts.policy, facts, known, width);
    replace(this.parts.privacy, privacyPanel(known.privacy, known.risk));
    replace(this.parts.history, historyPanel(known.history.rounds, width));
    const { verdict: verdictPlace, forms, rest } = this.changing, commands = commandsPanel(this.name, facts.allowed_changes);
    replace(verdictPlace, `${known.answer.result.stage === "learning" ? "So far: " : ""}${verdict(known.answer.conclusion)}.`);
    this.operator?.show(forms, facts);
    replace(rest, this.operator ? makeDetails("commands-more", "The same as commands", commands) : commands, makeDetails("spec", "What it was created from", specTables(facts.spec)));
  }

  measureWidth() {
    return Math.max(240, (this.parts?.findings.clientWidth || this.body.clientWidth));
  }

  redraw() {
    if (!this.known || this.measureWidth() === this.drawn) return;
    this.drawn = this.measureWidth();
    requestAnimationFrame(() => this.draw());
  }

  /** Counts seen, over visits: the browser keeps them if it may. */
  addCount(time, accepted) {
    const key = `privateer:${this.name}`;
    let points = this.counts ?? [];
    try {
      points = this.counts ?? JSON.parse(localStorage.getItem(key) ?? "[]");
      points = addPoint(points, time, accepted);
      localStorage.setItem(key, JSON.stringify(points));
    } catch {
      points = addPoint(this.counts ?? [], time, accepted);
    }
    return points;
  }

  goTo(part) {
    this.wanted = this.known ? "" : part;
    if (this.parts) this.showScreen(part);
    const title = part && document.getElementById(`${part}-title`);
    if (!title) return;
    title.scrollIntoView({ block: "start" });
    title.focus({ preventScroll: true });
  }

  showMissing({ status, message }) {
    if (this.known && status !== 404 && status !== 410) return;
    const reason = status === 410 ? "It was deleted, and its name is never used again." : status === 404 ? "This server has no such experiment." : message;
    this.parts = this.known = this.headed = null;
    replace(this.place, el("p", {}, el("a", { href: "#/" }, "← All experiments")), el("h1", {}, this.name), el("p", { class: "panel" }, reason));
  }
}
