// What each person is promised, what it means, and what every round has spent of it.

import { el, facts, more } from "./dom.mjs";
import { table } from "./tables.mjs";
import { capital, cell, count, figure, many, percent, spaced } from "./words.mjs";

/** The parts of the panel; `risk` is null until it is known. */
export function privacyPanel(record, risk) {
  return [promise(record), ...record.certificate.claims.map((claim, n) => claimed(claim, risk?.risks[n])),
    assumed(record.certificate.assumes), ...record.sources.map(source), rounds("rounds", "What each round spent, and how reports were randomized", record),
    el("p", { class: "hint" }, "Anybody can compute all of this anew: ", el("code", {}, `privateer account experiment ${record.experiment}`))];
}

/** A promise in one sentence. */
export function inWords({ epsilon, delta }) {
  if (epsilon === null) return "Nothing is promised.";
  return `Epsilon ${figure(epsilon)}${delta > 0 ? `, delta ${figure(delta)}` : ""}`;
}

function promise(record) {
  const reports = record.reports_per_person, several = reports > 1 ? ` All ${count(reports)} reports of a person share it.` : " A person reports once, in one round, and spends it there.";
  return [el("p", { class: "recommended" }, record.epsilon === null ? "Nobody is promised anything: this is a baseline." : ["Each person is promised ", el("strong", {}, inWords(record).toLowerCase()), `.${several}`])];
}

/** One claim, with what the best attack achieves in plain words. */
function claimed(claim, risk) {
  const title = `Against ${claim.against}`;
  if (claim.epsilon === null) return el("div", { class: "claim" }, el("h3", {}, title), el("p", {}, `${capital(claim.proof)}.`));
  return el("div", { class: "claim" }, el("h3", {}, title), risk ? guessing(risk.guesses, risk.advantage) : null,
    facts([["Claim", inWords(claim)], ["About", claim.about], ["Proof", `${claim.proof}${claim.exact ? "; exact" : "; an upper bound"}`]]));
}

function guessing(guesses, advantage) {
  const meter = el("meter", { min: "0.5", max: "1", low: "0.6", high: "0.8", optimum: "0.5", value: String(guesses), "aria-label": "How often the best attacker guesses right" }, percent(guesses));
  return [meter, el("p", {}, `Somebody there who suspects that you told one of two things guesses right at most ${perHundred(guesses)} times of 100, whatever else they know and however they attack. Without your report it is 50.`),
    el("p", { class: "muted" }, `Their membership advantage, the rate of true alarms less that of false ones, is ${figure(advantage, 3)} at most.`)];
}

/** Times of a hundred, rounded up. */
export const perHundred = (share) => figure(share > 0.995 ? Math.ceil(10_000 * share) / 100 : Math.ceil(1000 * share) / 10);

function assumed(texts) {
  if (!texts.length) return null;
  return el("div", {}, el("h3", {}, "What nobody can compute, and the promise rests on"), el("ul", {}, texts.map((text) => el("li", {}, capital(text)))));
}

function source(one) {
  return el("div", { class: "claim" }, el("h3", {}, `People of the source ${one.name}`), el("p", {}, `${inWords(one)}.`),
    rounds(`rounds-${one.name}`, `Rounds of ${one.name}`, one));
}

function rounds(id, title, { rounds: rows, planned }) {
  if (!rows.length) return planned ? el("p", {}, `No round yet. The first asks ${many(planned.batch, "person", "people")}: ${mechanism(planned.mechanism)}.`) : null;
  const columns = ["version", "people asked", "people counted on", "reports", "released", "randomized by"];
  return more(`${id}-more`, title, table(id, title, columns, [...rows].reverse().map((row) =>
    [row.version, row.batch, row.honest, row.received, row.released, mechanism(row.mechanism)])));
}

/** How reports are randomized: the kind, and its plain parameters. */
export function mechanism({ type, ...parameters }) {
  const shown = Object.entries(parameters).filter(([, value]) => typeof value === "number" || typeof value === "boolean")
    .map(([name, value]) => `${spaced(name)} ${cell(value)}`);
  return [spaced(type), ...shown].join(", ");
}
