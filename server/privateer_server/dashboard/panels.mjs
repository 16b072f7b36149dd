// Reports, history and commands.

import { drawLine } from "./charts.mjs";
import { makeCommand, el, makeDetails } from "./dom.mjs";
import { drawDocument } from "./documents.mjs";
import { describeReason } from "./reasons.mjs";
import { makeTable } from "./tables.mjs";
import { capitalize, figureName, formatCount, formatPercent, spaceWords } from "./words.mjs";

/** Reports accepted, and refused by reason. */
export function reportsPanel({ accepted, refused }) {
  const rows = Object.entries(refused).sort((first, second) => second[1] - first[1]), nRefused = rows.reduce((sum, [, number]) => sum + number, 0);
  return [el("p", {}, `${formatCount(accepted, "report")} accepted, ${formatCount(nRefused, "report")} refused${nRefused ? ` (${formatPercent(nRefused / (accepted + nRefused), 1)})` : ""}.`),
    rows.length ? makeTable("refused", "Refused reports by reason", ["reason", "reports", "what it means"], rows.map(([reason, number]) => [reason, number, describeReason(reason)])) : null];
}

/** Figures that a history has for its versions: `[{name, points: [{version, value}]}]`. */
export function collectFigures(rounds) {
  const pointsByName = new Map();
  for (const { version, figures } of rounds) {
    for (const [name, value] of Object.entries(figures)) pointsByName.set(name, [...(pointsByName.get(name) ?? []), { version, value }]);
  }
  return [...pointsByName].map(([name, points]) => ({ name, points }));
}

/** Every round, and how the learner's figures went. */
export function historyPanel(rounds) {
  const figures = collectFigures(rounds).filter(({ points }) => points.length > 1), names = collectFigures(rounds).map(({ name }) => name);
  const columns = ["version", "cohort", "people asked", "reports", ...names.map(figureName)];
  const rows = [...rounds].reverse().map((row) => [row.version, row.cohort || null, row.batch_size, row.received, ...names.map((name) => row.figures[name] ?? null)]);
  return [figures.length ? el("div", { class: "smalls" }, figures.map(({ name, points }) =>
    drawLine(capitalize(figureName(name)), points.map(({ version, value }) => ({ at: version, value })), { unit: "versions" }))) : null,
  makeDetails("history-more", `All ${formatCount(rounds.length, "version")} as a table`, makeTable("rounds-table", "Every version: whom its round asked, and what the learner counted before it", columns, rows))];
}

const COMMANDS = {
  pause: ["Ask nobody for a while", "change pause NAME"], resume: ["Ask people again", "change resume NAME"], stop: ["End it", "change stop NAME"],
  extend: ["Ask more people", "change extend NAME HORIZON"], "retire-arm": ["Take an arm back", "change retire-arm NAME ARM"], "add-arm": ["Try another arm", "change add-arm NAME ARM"],
  clone: ["Begin another one with what this one has learned", "change clone NAME OTHER"], delete: ["Delete it", "change delete NAME"],
};

/** Commands that change the experiment, those that the server says it accepts; a page that strangers reach cannot. */
export function commandsPanel(name, allowedChanges) {
  const rows = [...allowedChanges.map((change) => COMMANDS[change]).filter(Boolean), ["Keep what it has learned", "export NAME DIR"]];
  return [el("p", {}, "These commands change it; they need the admin token and the server's private listener. The page that the private listener serves has forms for the same. ", el("code", {}, `privateer change log ${name}`), " says what was changed, and when. What its algorithm refuses is left out."),
    el("ul", { class: "commands" }, rows.map(([purpose, text]) => el("li", {}, `${purpose}:`, makeCommand(`privateer ${text.replace("NAME", name)}`))))];
}

/** The spec, section by section. */
export function drawSpec(document) {
  return Object.entries(document).filter(([, value]) => !Array.isArray(value) || value.length).map(([key, value]) =>
    el("div", {}, el("h3", {}, capitalize(spaceWords(key))), drawDocument(`spec-${key}`, value !== null && typeof value === "object" ? value : { [key]: value })));
}
