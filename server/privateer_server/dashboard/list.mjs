// The view of all experiments: what was found of each, how far it is, and which of them to look at first.

import { addressOf } from "./address.mjs";
import { progress } from "./charts.mjs";
import { command, el, replace } from "./dom.mjs";
import { merged } from "./news.mjs";
import { isUnseen } from "./people.mjs";
import { operator } from "./operator.mjs";
import { ask, follow, page } from "./service.mjs";
import { badge } from "./status.mjs";
import { verdict } from "./verdict.mjs";
import { count, many, moment } from "./words.mjs";

const SORTED = 2, ASKED_AT_ONCE = 3, SOON = 150, AGAIN = 30_000;
const STATUSES = ["open", "draining", "paused", "failed", "stopped", "finished"];
const place = (status) => (STATUSES.includes(status) ? STATUSES.indexOf(status) : STATUSES.length);
const byName = (one, other) => one.name.localeCompare(other.name, "en", { numeric: true });

/** Orders by the words of the menu. Those that are alike stand by name. */
const ORDERS = {
  name: byName,
  status: (one, other) => place(one.status) - place(other.status) || byName(one, other),
  "most reports": (one, other) => other.accepted - one.accepted || byName(one, other),
  "newest first": (one, other) => (other.began ?? "").localeCompare(one.began ?? "") || byName(one, other),
};

/** Show the list in a place until `signal` ends. */
export function showList(where, heard, signal) {
  const cards = el("ul", { class: "cards" }), about = el("p", { class: "muted", role: "status" }, "Asking the server …");
  const answers = new Answers(signal, soon(() => draw(), signal));
  let experiments = [], known = false, wanted = "", order = "status", status = "";
  const menu = (id, label, choices, now, choose) => el("span", {}, el("label", { for: id }, label), " ", el("select", { id, onchange: (event) => { choose(event.target.value); draw(); } },
    choices.map(([value, text]) => el("option", { value, selected: value === now }, text))));
  const tools = el("div", { class: "filter", hidden: true, role: "search" },
    el("span", {}, el("label", { for: "filter" }, "Find"), " ", el("input", { type: "search", id: "filter", placeholder: "name or answer",
      oninput: (event) => { wanted = event.target.value.toLowerCase(); draw(); } })),
    menu("statuses", "Status", [["", "all"], ...STATUSES.map((one) => [one, one])], status, (value) => { status = value; }),
    menu("order", "Sort by", Object.keys(ORDERS).map((one) => [one, one]), order, (value) => { order = value; }));
  const all = () => [el("h1", {}, "Experiments"), about, operator ? el("p", {}, el("a", { href: "#new", class: "button", id: "create" }, "Create an experiment")) : null, tools, cards];
  replace(where, all());

  function draw() {
    const rows = experiments.map((one) => ({ ...one, ...answers.of(one) }));
    const shown = rows.filter((one) => (!status || one.status === status) && `${one.name} ${one.says}`.toLowerCase().includes(wanted)).sort(ORDERS[order]);
    tools.hidden = experiments.length < SORTED;
    replace(cards, shown.map(card));
    answers.want(shown);
    const running = experiments.filter((one) => one.status === "open").length;
    const found = shown.length < experiments.length ? ` ${count(shown.length)} shown.` : "";
    const text = `${many(experiments.length, "experiment")}, ${running} of them open.${found}`;
    if (about.textContent !== text) about.textContent = text;
  }

  follow("events", async (stopped, news) => (news === undefined ? (await ask("experiments", stopped)).experiments : merged(experiments, news)), (news) => {
    heard(news);
    if (!news.data || (known && news.data === experiments)) return;
    [experiments, known] = [news.data, true];
    if (experiments.length) draw();
    else replace(where, empty());
    if (experiments.length && !where.contains(cards)) replace(where, all());
  }, signal);
  return { goTo() {} };
}

/** A call that many calls within a moment make once. */
function soon(call, signal) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    setTimeout(() => { waits = false; if (!signal.aborted) call(); }, SOON);
  };
}

/** The answers of experiments, asked for once for every version and status, a few at a time. */
class Answers {
  constructor(signal, told) {
    Object.assign(this, { signal, told, known: new Map(), waiting: [], asking: 0 });
  }

  /** What is known of an experiment: its answer in words, and when it began. */
  of({ name }) {
    const { says, began } = this.known.get(name) ?? {};
    return { says: says ?? "", began: began ?? null };
  }

  /** Ask for those that are not known as they stand, in this order. */
  want(experiments) {
    const stamp = ({ digest, status }) => `${digest} ${status}`;
    this.waiting = experiments.filter((one) => this.known.get(one.name)?.stamp !== stamp(one)).map((one) => [one.name, stamp(one)]);
    while (this.asking < ASKED_AT_ONCE && this.waiting.length) this.next();
  }

  /** Forget after a while that it was asked for. */
  later(name) {
    setTimeout(() => {
      if (this.signal.aborted) return;
      this.known.set(name, { ...this.known.get(name), stamp: null });
      this.told();
    }, AGAIN);
  }

  async next() {
    const [name, stamp] = this.waiting.shift();
    // It is known that it was asked for: a server that does not answer is not asked again at once.
    this.known.set(name, { ...this.known.get(name), stamp });
    this.asking += 1;
    try {
      const { conclusion, began } = await ask(page(name, "/answer"), this.signal);
      this.known.set(name, { stamp, says: verdict(conclusion), began });
    } catch {
      if (this.signal.aborted) return;
      this.later(name);
    } finally {
      this.asking -= 1;
      if (this.waiting.length && !this.signal.aborted) this.next();
    }
    this.told();
  }
}

function card({ name, status, algorithm, model, version, batch, received, people, says, began }) {
  const come = isUnseen(people) ? `waits for ${many(batch - received, "report")} from its shuffler` : `has ${count(received)} of ${count(batch)} reports`;
  const round = batch ? `round ${count(version)} ${come}` : "nobody is asked", { planned, counted, held } = people;
  return el("li", { class: "card" },
    el("h2", {}, el("a", { href: addressOf(name), id: `to-${name}` }, name), badge(status)),
    el("p", { class: "verdict" }, says || "…"),
    el("div", {}, progress(`Reports of ${name}`, counted + held.in_open_round, planned), el("p", { class: "muted" }, `${count(counted + held.in_open_round)} of ${many(planned, "report")} at most; ${round}`)),
    el("p", { class: "muted" }, `${algorithm}, ${model}`, began ? `, since ${moment(Date.parse(began))}` : ""));
}

function empty() {
  return [
    el("h1", {}, "Experiments"),
    el("div", { class: "panel" },
      el("h2", {}, "There is no experiment yet"),
      operator ? el("p", {}, el("a", { href: "#new", class: "button", id: "create" }, "Create an experiment")) : null,
      el("p", {}, "An experiment is a TOML file. Plan it without asking anybody for data, then create it on this server:"),
      command("privateer simulate examples/peaks-shuffle.toml --users 20000 --seeds 2"),
      command("PRIVATEER_ADMIN_TOKEN=… privateer create examples/peaks-shuffle.toml"),
      el("p", {}, "The token is the server's. If you started it with ", el("code", {}, "privateer up"), ", the token is the one that you gave it, or in its first lines. This page shows the experiment as soon as it is there.")),
  ];
}
