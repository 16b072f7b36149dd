// The dashboard: which view is shown, and what is said when the server does not answer.

import { el } from "./dom.mjs";
import { showExperiment } from "./experiment.mjs";
import { showList } from "./list.mjs";
import { operator } from "./operator.mjs";
import { NEW, parseAddress } from "./address.mjs";
import { Refused } from "./errors.mjs";
import { askNow } from "./service.mjs";
import { formatTime, formatDuration } from "./words.mjs";

const main = document.getElementById("main"), connection = document.getElementById("connection");
const retryButton = document.getElementById("again");
let shownName = null, view = null, lastAnswerTime = null, isSilent = false;

const TITLES = { "": "Experiments", [NEW]: "Create an experiment" };

/** What a view tells of each answer, or of its absence. */
function noteAnswer({ error, at: time }) {
  if (!error) lastAnswerTime = time;
  isSilent = Boolean(error) && !(error instanceof Refused);
  document.body.classList.toggle("silent", isSilent);
  showConnection();
}

function showConnection() {
  let text = "";
  if (isSilent && lastAnswerTime === null) text = "The server does not answer. This page tries again every few seconds.";
  else if (isSilent) text = `The server does not answer. It last did at ${formatTime(lastAnswerTime)}, ${formatDuration(Date.now() - lastAnswerTime)} ago. What you see is from then; this page tries again every few seconds.`;
  else if (lastAnswerTime !== null) text = `Live: last answer at ${new Date(lastAnswerTime).toLocaleTimeString("en-GB")}`;
  retryButton.hidden = !isSilent;
  if (!isSilent) connection.removeAttribute("data-said");
  // Those who listen shall not hear the seconds.
  connection.setAttribute("aria-live", isSilent && !connection.dataset.said ? "polite" : "off");
  if (isSilent) connection.dataset.said = "1";
  if (connection.textContent !== text) connection.textContent = text;
}

function showAddress() {
  const address = parseAddress(location.hash);
  if (!address) return;
  if (shownName === address.name && address.name !== NEW && view) {
    view.goTo(address.part);
    return;
  }
  view?.end.abort();
  shownName = address.name;
  const end = new AbortController(), place = el("div");
  main.replaceChildren(place);
  const created = createView(place, address, end.signal);
  view = { end, goTo: created.goTo };
  document.title = `${TITLES[address.name] ?? address.name} – Privateer`;
  scrollTo(0, 0);
}

function createView(place, address, signal) {
  if (address.name === NEW && operator) return operator.showEditor(place, noteAnswer, signal);
  return address.name ? showExperiment(place, address, noteAnswer, signal) : showList(place, noteAnswer, signal);
}

if (operator) document.querySelector("footer").append(el("p", {}, "This is the private listener's page: since when a round is open, and the log of changes, are here alone."));
retryButton.addEventListener("click", askNow);
addEventListener("online", askNow);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", showAddress);
setInterval(() => isSilent && showConnection(), 10_000);
showAddress();
