// Reports, history and commands.

import { line } from "./charts.mjs";
import { command, el, facts as pairs, more } from "./dom.mjs";
import { meaning } from "./reasons.mjs";
import { figuresOf, plainTables } from "./shapes.mjs";
import { table } from "./tables.mjs";
import { capital, cell, many, percent, spaced } from "./words.mjs";

const OVER = new Set(["stopped", "finished", "failed"]);

/** Reports accepted, and refused by reason. */
export function reportsPanel({ accepted, refused }) {
  const rows = Object.entries(refused).sort((one, other) => other[1] - one[1]), all = rows.reduce((sum, [, number]) => sum + number, 0);
  return [el("p", {}, `${many(accepted, "report")} accepted, ${many(all, "report")} refused${all ? ` (${percent(all / (accepted + all), 1)})` : ""}.`),
    rows.length ? table("refused", "Refused reports by reason", ["reason", "reports", "what it means"], rows.map(([reason, number]) => [reason, number, meaning(reason)])) : null];
}

/** Every round, and how the learner's figures went. */
export function historyPanel(rounds) {
  const figures = figuresOf(rounds).filter(({ points }) => points.length > 1), names = figuresOf(rounds).map(({ name }) => name);
  const columns = ["version", "cohort", "people asked", "reports", ...names.map(spaced)];
  const rows = [...rounds].reverse().map((row) => [row.version, row.cohort || null, row.batch, row.received, ...names.map((name) => row.figures[name] ?? null)]);
  return [figures.length ? el("div", { class: "smalls" }, figures.map(({ name, points }) =>
    line(capital(spaced(name)), points.map(({ version, value }) => ({ at: version, value })), { unit: "versions" }))) : null,
  more("history-more", `All ${many(rounds.length, "version")} as a table`, table("rounds-table", "Every version: whom its round asked, and what the learner counted before it", columns, rows))];
}

/** Commands that change the experiment; a page that strangers reach cannot. */
export function commandsPanel(name, status) {
  const rows = OVER.has(status) ? [["Begin another one with what this one has learned", `privateer export ${name} DIR`], ["Delete it", `privateer delete ${name}`]] : [
    status === "paused" ? ["Ask people again", `privateer resume ${name}`] : ["Ask nobody for a while", `privateer pause ${name}`],
    ["End it", `privateer stop ${name}`], ["Ask more people", `privateer extend ${name} HORIZON`], ["Take an arm back", `privateer retire-arm ${name} ARM`],
    ["Try another arm", `privateer add-arm ${name} ARM`], ["Keep what it has learned", `privateer export ${name} DIR`]];
  return [el("p", {}, "These commands change it; they need the admin token and the server's private listener. The page that the private listener serves has forms for the same. ", el("code", {}, `privateer log ${name}`), " says what was changed, and when. An algorithm refuses what would break its promises, and says what to do instead."),
    el("ul", { class: "commands" }, rows.map(([what, text]) => el("li", {}, `${what}:`, command(text))))];
}

/** The spec, section by section. */
export function spec(document) {
  return Object.entries(document).filter(([, value]) => !Array.isArray(value) || value.length).map(([key, value]) => {
    const { plain, tables } = plainTables(value !== null && typeof value === "object" ? value : { [key]: value });
    return el("div", {}, el("h3", {}, capital(spaced(key))), pairs(plain.map(([name, one]) => [capital(spaced(name)), cell(one)])),
      tables.map(({ title, columns, rows }, n) => table(`spec-${key}-${n}`, capital(spaced(title)), columns, rows)));
  });
}
