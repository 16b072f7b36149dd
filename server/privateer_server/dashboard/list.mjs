// The view of all experiments: what was found of each, how far it is, and which of them to look at first.

import { formatAddress } from "./address.mjs";
import { makeProgressBar } from "./charts.mjs";
import { makeCommand, el, replace } from "./dom.mjs";
import { isUnseen } from "./people.mjs";
import { operator } from "./operator.mjs";
import { ask, follow, makeAddress } from "./service.mjs";
import { makeBadge } from "./status.mjs";
import { verdict } from "./verdict.mjs";
import { formatNumber, formatCount, formatTime } from "./words.mjs";

const SORTED = 2, ASKED_AT_ONCE = 3, SOON = 150, AGAIN = 30_000;
const STATUSES = ["open", "draining", "paused", "failed", "stopped", "finished"];
const statusPosition = (status) => (STATUSES.includes(status) ? STATUSES.indexOf(status) : STATUSES.length);
const compareNames = (first, second) => first.name.localeCompare(second.name, "en", { numeric: true });

/** Orders by the words of the menu. Those that are alike stand by name. */
const ORDERS = {
  name: compareNames,
  status: (first, second) => statusPosition(first.status) - statusPosition(second.status) || compareNames(first, second),
  "most reports": (first, second) => second.accepted - first.accepted || compareNames(first, second),
  "newest first": (first, second) => (second.began ?? "").localeCompare(first.began ?? "") || compareNames(first, second),
};

/** Show the list in a place until `signal` ends. */
export function showList(place, noteAnswer, signal) {
  const cards = el("ul", { class: "cards" }), about = el("p", { class: "muted", role: "status" }, "Asking the server …");
  const answers = new Answers(signal, callOnceSoon(() => draw(), signal));
  let experiments = [], searchText = "", order = "status", status = "";
  const menu = (id, label, choices, selected, choose) => el("span", {}, el("label", { for: id }, label), " ", el("select", { id, onchange: (event) => { choose(event.target.value); draw(); } },
    choices.map(([value, text]) => el("option", { value, selected: value === selected }, text))));
  const tools = el("div", { class: "filter", hidden: true, role: "search" },
    el("span", {}, el("label", { for: "filter" }, "Find"), " ", el("input", { type: "search", id: "filter", placeholder: "name or answer",
      oninput: (event) => { searchText = event.target.value.toLowerCase(); draw(); } })),
    menu("statuses", "Status", [["", "all"], ...STATUSES.map((option) => [option, option])], status, (value) => { status = value; }),
    menu("order", "Sort by", Object.keys(ORDERS).map((option) => [option, option]), order, (value) => { order = value; }));
  const parts = () => [el("h1", {}, "Experiments"), about, operator ? el("p", {}, el("a", { href: "#new", class: "button", id: "create" }, "Create an experiment")) : null, tools, cards];
  replace(place, parts());

  function draw() {
    const rows = experiments.map((experiment) => ({ ...experiment, ...answers.describe(experiment) }));
    const shownRows = rows.filter((row) => (!status || row.status === status) && `${row.name} ${row.says}`.toLowerCase().includes(searchText)).sort(ORDERS[order]);
    tools.hidden = experiments.length < SORTED;
    replace(cards, shownRows.map(makeCard));
    answers.request(shownRows);
    const running = experiments.filter((experiment) => experiment.status === "open").length;
    const shownNote = shownRows.length < experiments.length ? ` ${formatNumber(shownRows.length)} shown.` : "";
    const text = `${formatCount(experiments.length, "experiment")}, ${running} of them open.${shownNote}`;
    if (about.textContent !== text) about.textContent = text;
  }

  follow(async (stopped) => (await ask("experiments", stopped)).experiments, (news) => {
    noteAnswer(news);
    if (!news.data) return;
    experiments = news.data;
    if (experiments.length) draw();
    else replace(place, makeEmptyPage());
    if (experiments.length && !place.contains(cards)) replace(place, parts());
  }, signal);
  return { goTo() {} };
}

/** A call that many calls within a moment make once. */
function callOnceSoon(call, signal) {
  let isPlanned = false;
  return () => {
    if (isPlanned) return;
    isPlanned = true;
    setTimeout(() => { isPlanned = false; if (!signal.aborted) call(); }, SOON);
  };
}

/** The answers of experiments, asked for once for every version and status, a few at a time. */
class Answers {
  constructor(signal, told) {
    Object.assign(this, { signal, told, known: new Map(), waiting: [], asking: 0 });
  }

  /** What is known of an experiment: its answer in words, and when it began. */
  describe({ name }) {
    const { says, began } = this.known.get(name) ?? {};
    return { says: says ?? "", began: began ?? null };
  }

  /** Ask for those that are not known as they stand, in this order. */
  request(experiments) {
    const stamp = ({ digest, status }) => `${digest} ${status}`;
    this.waiting = experiments.filter((experiment) => this.known.get(experiment.name)?.stamp !== stamp(experiment)).map((experiment) => [experiment.name, stamp(experiment)]);
    while (this.asking < ASKED_AT_ONCE && this.waiting.length) this.requestNext();
  }

  /** Forget after a while that it was asked for. */
  requestAgainLater(name) {
    setTimeout(() => {
      if (this.signal.aborted) return;
      this.known.set(name, { ...this.known.get(name), stamp: null });
      this.told();
    }, AGAIN);
  }

  async requestNext() {
    const [name, stamp] = this.waiting.shift();
    // It is known that it was asked for: a server that does not answer is not asked again at once.
    this.known.set(name, { ...this.known.get(name), stamp });
    this.asking += 1;
    try {
      const { conclusion, began } = await ask(makeAddress(name, "/answer"), this.signal);
      this.known.set(name, { stamp, says: verdict(conclusion), began });
    } catch {
      if (this.signal.aborted) return;
      this.requestAgainLater(name);
    } finally {
      this.asking -= 1;
      if (this.waiting.length && !this.signal.aborted) this.requestNext();
    }
    this.told();
  }
}

function makeCard({ name, status, algorithm, model, version, batch_size: batchSize, received, people, says, began }) {
  const come = isUnseen(people) ? `waits for ${formatCount(batchSize - received, "report")} from its shuffler` : `has ${formatNumber(received)} of ${formatNumber(batchSize)} reports`;
  const round = batchSize ? `round ${formatNumber(version)} ${come}` : "nobody is asked", { planned, counted, held: heldReports } = people;
  return el("li", { class: "card" },
    el("h2", {}, el("a", { href: formatAddress(name), id: `to-${name}` }, name), makeBadge(status)),
    el("p", { class: "verdict" }, says || "…"),
    el("div", {}, makeProgressBar(`Reports of ${name}`, counted + heldReports.in_open_round, planned), el("p", { class: "muted" }, `${formatNumber(counted + heldReports.in_open_round)} of ${formatCount(planned, "report")} at most; ${round}`)),
    el("p", { class: "muted" }, `${algorithm}, ${model}`, began ? `, since ${formatTime(Date.parse(began))}` : ""));
}

function makeEmptyPage() {
  return [
    el("h1", {}, "Experiments"),
    el("div", { class: "panel" },
      el("h2", {}, "There is no experiment yet"),
      operator ? el("p", {}, el("a", { href: "#new", class: "button", id: "create" }, "Create an experiment")) : null,
      el("p", {}, "An experiment is a TOML file. Plan it without asking anybody for data, then create it on this server:"),
      makeCommand("privateer simulate examples/peaks-shuffle.toml --users 20000 --seeds 2"),
      makeCommand("PRIVATEER_ADMIN_TOKEN=… privateer create examples/peaks-shuffle.toml"),
      el("p", {}, "The token is the server's. If you started it with ", el("code", {}, "privateer up"), ", the token is the one that you gave it, or in its first lines. This page shows the experiment as soon as it is there.")),
  ];
}
