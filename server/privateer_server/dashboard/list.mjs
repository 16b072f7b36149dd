// The view of all experiments.

import { addressOf } from "./address.mjs";
import { progress } from "./charts.mjs";
import { command, el, facts, replace } from "./dom.mjs";
import { merged } from "./news.mjs";
import { operator } from "./operator.mjs";
import { ask, follow } from "./service.mjs";
import { badge } from "./status.mjs";
import { count, many } from "./words.mjs";

const FILTERED = 7;

/** Show the list in a place until `signal` ends. */
export function showList(place, heard, signal) {
  const cards = el("ul", { class: "cards" }), about = el("p", { class: "muted" }, "Asking the server …");
  let experiments = [], known = false, wanted = "";
  const filter = el("label", { class: "filter", hidden: true }, "Only names with ", el("input", { type: "search", id: "filter",
    oninput: (event) => { wanted = event.target.value.toLowerCase(); draw(); } }));
  const all = () => [el("h1", {}, "Experiments"), about, operator ? el("p", {}, el("a", { href: "#new", class: "button", id: "create" }, "Create an experiment")) : null, filter, cards];
  replace(place, all());

  function draw() {
    const shown = experiments.filter(({ name }) => name.toLowerCase().includes(wanted));
    filter.hidden = experiments.length < FILTERED;
    replace(cards, shown.map(card));
    const running = experiments.filter(({ status }) => status === "open").length;
    about.textContent = `${many(experiments.length, "experiment")}, ${running} of them open.`;
  }

  follow("events", async (stopped, news) => (news === undefined ? (await ask("experiments", stopped)).experiments : merged(experiments, news)), (news) => {
    heard(news);
    if (!news.data || (known && news.data === experiments)) return;
    [experiments, known] = [news.data, true];
    if (experiments.length) draw();
    else replace(place, empty());
    if (experiments.length && !place.contains(cards)) replace(place, all());
  }, signal);
  return { goTo() {} };
}

function card({ name, status, algorithm, model, version, batch, received, accepted, planned }) {
  const round = batch ? `${count(received)} of ${count(batch)} reports` : "nobody is asked";
  return el("li", { class: "card" },
    el("h2", {}, el("a", { href: addressOf(name), id: `to-${name}` }, name), badge(status)),
    progress(`Reports of ${name}`, accepted, planned),
    el("p", { class: "muted" }, `${count(accepted)} of ${many(planned, "report")} at most`),
    facts([["Algorithm", algorithm], ["Trust model", model], [`Round ${count(version)}`, round]]));
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
