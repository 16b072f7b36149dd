// The dashboard: which view is shown, and what is said when the server does not answer.

import { el } from "./dom.mjs";
import { showExperiment } from "./experiment.mjs";
import { showList } from "./list.mjs";
import { operator } from "./operator.mjs";
import { NEW, parseAddress } from "./address.mjs";
import { Refused } from "./errors.mjs";
import { askNow } from "./service.mjs";
import { moment, span } from "./words.mjs";

const main = document.getElementById("main"), connection = document.getElementById("connection");
const again = document.getElementById("again");
let shown = null, view = null, answered = null, silent = false, streams = true;

const TITLES = { "": "Experiments", [NEW]: "Create an experiment" };

/** What a view tells of each answer, or of its absence. */
function heard({ error, at, live }) {
  if (!error) [answered, streams] = [at, live];
  silent = Boolean(error) && !(error instanceof Refused);
  document.body.classList.toggle("silent", silent);
  say();
}

function say() {
  let text = "";
  if (silent && answered === null) text = "The server does not answer. This page tries again every few seconds.";
  else if (silent) text = `The server does not answer. It last did at ${moment(answered)}, ${span(Date.now() - answered)} ago. What you see is from then; this page tries again every few seconds.`;
  else if (answered !== null) text = `${streams ? "Live" : "Asking every few seconds"}: last answer at ${new Date(answered).toLocaleTimeString("en-GB")}`;
  again.hidden = !silent;
  if (!silent) connection.removeAttribute("data-said");
  // Those who listen shall not hear the seconds.
  connection.setAttribute("aria-live", silent && !connection.dataset.said ? "polite" : "off");
  if (silent) connection.dataset.said = "1";
  if (connection.textContent !== text) connection.textContent = text;
}

function route() {
  const address = parseAddress(location.hash);
  if (!address) return;
  if (shown === address.name && address.name !== NEW && view) {
    view.goTo(address.part);
    return;
  }
  view?.end.abort();
  shown = address.name;
  const end = new AbortController(), place = el("div");
  main.replaceChildren(place);
  const made = show(place, address, end.signal);
  view = { end, goTo: made.goTo };
  document.title = `${TITLES[address.name] ?? address.name} – Privateer`;
  scrollTo(0, 0);
}

function show(place, address, signal) {
  if (address.name === NEW && operator) return operator.showEditor(place, heard, signal);
  return address.name ? showExperiment(place, address, heard, signal) : showList(place, heard, signal);
}

if (operator) document.querySelector("footer").append(el("p", {}, "This is the private listener's page: since when a round is open, and the log of changes, are here alone."));
again.addEventListener("click", askNow);
addEventListener("online", askNow);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);
setInterval(() => silent && say(), 10_000);
route();
