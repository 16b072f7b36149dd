// The dashboard: which view is shown, and what is said when the server does not answer.

import { el } from "./dom.mjs";
import { showExperiment } from "./experiment.mjs";
import { showList } from "./list.mjs";
import { parseAddress } from "./address.mjs";
import { Refused } from "./service.mjs";
import { moment, span } from "./words.mjs";

const main = document.getElementById("main"), connection = document.getElementById("connection");
let shown = null, view = null, answered = null, silent = false;

/** What a view tells of each answer, or of its absence. */
function heard({ error, at }) {
  if (!error) answered = at;
  silent = Boolean(error) && !(error instanceof Refused);
  document.body.classList.toggle("silent", silent);
  say();
}

function say() {
  let text = "";
  if (silent && answered === null) text = "The server does not answer. This page tries again every few seconds.";
  else if (silent) text = `The server does not answer. It last did at ${moment(answered)}, ${span(Date.now() - answered)} ago. What you see is from then; this page tries again every few seconds.`;
  else if (answered !== null) text = `Live: last answer at ${new Date(answered).toLocaleTimeString("en-GB")}`;
  if (!silent) connection.removeAttribute("data-said");
  // Those who listen shall not hear the seconds.
  connection.setAttribute("aria-live", silent && !connection.dataset.said ? "polite" : "off");
  if (silent) connection.dataset.said = "1";
  if (connection.textContent !== text) connection.textContent = text;
}

function route() {
  const address = parseAddress(location.hash);
  if (!address) return;
  if (shown === address.name && view) {
    view.goTo(address.part);
    return;
  }
  view?.end.abort();
  shown = address.name;
  const end = new AbortController(), place = el("div");
  main.replaceChildren(place);
  const made = address.name ? showExperiment(place, address, heard, end.signal) : showList(place, heard, end.signal);
  view = { end, goTo: made.goTo };
  document.title = address.name ? `${address.name} – Privateer` : "Experiments – Privateer";
  scrollTo(0, 0);
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);
setInterval(() => silent && say(), 10_000);
route();
