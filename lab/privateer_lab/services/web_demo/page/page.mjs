/** A visitor, as a device: join, choose, report once; and what the server learned from all of them. */

import { Client, IndexedDbLedger, MemoryLedger, missing } from "./sdk/index.js";
import { drawn } from "./policy.mjs";
import { watchRequests } from "./watch.mjs";

const LIMITS = { epsilon: 4 };
const CROWD = 50;
const AT_ONCE = 5;
const EVERY = 1000;
const VISITOR = "privateer-demo-visitor";
const SCENES = { Lake: "a still lake under a pale sky", Forest: "round green trees", Market: "a stall with a striped roof" };
const WORDS = {
  accepted: "Your report is counted. It was the only one of this visitor: the ledger here has written it down.",
  late: "The round closed before your report came. It does not count, and nobody makes a second one.",
  pending: "No service has answered yet. The sealed report waits in this browser, and is sent when you come back.",
  refused: "The server did not take the report. Nothing else is sent.",
  "already-reported": "This visitor has reported, and never does so twice.",
  "not-requested": "The experiment asks nobody now. Nothing was sent.",
};
const $ = (id) => document.getElementById(id);
const demo = await (await fetch("demo.json")).json();
const watch = watchRequests(note);
/** @type {import("./sdk/session.js").Session | null} */
let session = null;

function note({ what, out, in: came, body }) {
  const row = $("requests").insertRow();
  for (const text of [what, out.toLocaleString("en"), came.toLocaleString("en")]) row.insertCell().textContent = text;
  for (const cell of [...row.cells].slice(1)) cell.className = "number";
  if (!body) return;
  $("sealed").hidden = false;
  $("bytes").textContent = Array.from(body, (byte) => byte.toString(16).padStart(2, "0")).join("");
  $("kept").textContent = "Where the slider stood, which place you saw and whether you liked it stayed here. The report hints at them, at random in part, and has the same size whatever it says. (Sizes are without headers.)";
}

/** @param {string} text */
function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

/** Which visitor this is: somebody else gets a ledger of their own. */
function visitor() {
  try {
    return Number(localStorage.getItem(VISITOR) ?? 1);
  } catch {
    return 1;
  }
}

const client = (ledger) => new Client(demo.server, { shuffler: demo.shuffler, ledger, limits: LIMITS, patience: 3 });

async function begin() {
  const lacks = await missing();
  if (lacks.length) {
    trouble(`This browser cannot take part: it has no ${lacks.join(", and no ")}. You can still see below what the server learned from others.`);
    return;
  }
  try {
    session = await client(new IndexedDbLedger(`privateer-demo-${visitor()}`)).join(demo.experiment);
    trouble(session.offline ? "The server does not answer. You can choose by the policy that was kept here." : "");
    $("choose").disabled = false;
    if (!session.reportRequested) $("outcome").textContent = "This visitor has reported, and never does so twice. You may still look at places.";
  } catch (error) {
    trouble(`${error.message}. You can still see below what the server learned from others.`);
  }
}

function show(place) {
  $("scene").className = place;
  $("scene").setAttribute("aria-label", SCENES[place] ?? place);
  $("place").textContent = place;
  $("shown").hidden = false;
  $("question").hidden = !session.reportRequested;
  for (const id of ["like", "dislike"]) $(id).hidden = !session.reportRequested;
}

$("about").addEventListener("submit", (event) => {
  event.preventDefault();
  show(session.choose({ mood: Number($("mood").value) }, { sticky: false }));
});

async function report(liked) {
  for (const id of ["like", "dislike", "choose"]) $(id).disabled = true;
  try {
    $("noise").textContent = noise();
    const outcome = await session.report(liked);
    $("outcome").textContent = WORDS[outcome];
    show($("place").textContent);
  } catch (error) {
    trouble(error.message);
  }
  for (const id of ["like", "dislike", "choose"]) $(id).disabled = false;
  await look();
}
$("like").addEventListener("click", () => report(1));
$("dislike").addEventListener("click", () => report(0));

/** How often a report says something at random. */
function noise() {
  const { response } = session.participation.mechanism;
  const random = 1 - Number(response.threshold) / 2 ** 64;
  return `as one of ${Number(response.symbols)} numbers, which are drawn at random in ${Math.round(100 * random)} of 100 reports`;
}

$("other").addEventListener("click", () => {
  try {
    localStorage.setItem(VISITOR, String(visitor() + 1));
  } catch {
    trouble("This browser keeps nothing, so it cannot tell visitors apart.");
    return;
  }
  location.reload();
});

/** One simulated person, with a device of their own. */
async function simulated() {
  const uniform = () => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;
  const mood = uniform();
  const one = await client(new MemoryLedger()).join(demo.experiment);
  const chances = { Lake: mood < 0.5 ? 0.9 : 0.2, Forest: 0.5, Market: mood < 0.5 ? 0.2 : 0.9 };
  const place = one.choose({ mood });
  await one.report(uniform() < chances[place]);
}

$("crowd").addEventListener("click", async () => {
  $("crowd").disabled = watch.muted = true;
  let [left, done] = [CROWD, 0];
  const some = async () => {
    while (left-- > 0) {
      await simulated();
      $("progress").textContent = `${++done} of ${CROWD} have reported`;
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, some));
    await look();
  } catch (error) {
    trouble(error.message);
  }
  $("crowd").disabled = watch.muted = false;
});

/** @param {string} page */
async function asked(page) {
  const answer = await fetch(`${demo.server}/experiments/${demo.experiment}${page}`, { headers: { accept: "application/json" }, credentials: "omit" });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

/** Show what everybody may read. */
async function look() {
  try {
    const [facts, { policy }] = await Promise.all([asked(""), asked("/policy")]);
    $("count").textContent = facts.accepted.toLocaleString("en");
    $("counted").textContent = facts.accepted === 1 ? "report is counted" : "reports are counted";
    $("round").textContent = `policy ${facts.version}`;
    const bins = policy.shows.bins.map(({ lower, upper, arms }) => ({ from: lower[0], to: upper[0], shares: arms }));
    $("policy").replaceChildren(...drawn(bins.sort((one, other) => one.from - other.from), facts.spec.experiment.arms));
    $("connection").textContent = "";
  } catch {
    $("connection").textContent = "The server does not answer; this is what it said last.";
  }
}

await Promise.all([begin(), look()]);
setInterval(look, EVERY);
