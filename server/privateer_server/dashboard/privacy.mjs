// What each person is promised, what it means, and what every round has spent of it.

import { el, makeFactList, makeDetails } from "./dom.mjs";
import { makeTable } from "./tables.mjs";
import { capitalize, formatCell, formatNumber, formatFigure, formatCount, formatPercent, spaceWords } from "./words.mjs";

/** The parts of the panel; `risk` is null until it is known. */
export function privacyPanel(record, risk) {
  return [makePromise(record), ...record.certificate.claims.map((claim, n) => makeClaim(claim, risk?.risks[n])),
    makeAssumptions(record.certificate.assumes), ...listGroups(record).map(makeGroup), makeRounds("rounds", "What each round spent, and how reports were randomized", record),
    el("p", { class: "hint" }, "Anybody can compute all of this anew: ", el("code", {}, `privateer account experiment ${record.experiment}`))];
}

/** A promise in one sentence. */
export function describePromise({ epsilon, delta }) {
  if (epsilon === null) return "Nothing is promised.";
  return `Epsilon ${formatFigure(epsilon)}${delta > 0 ? `, delta ${formatFigure(delta)}` : ""}`;
}

/** The records of people with a promise of their own: those of sources, and of tiers. */
const listGroups = (record) => [...record.sources, ...(record.tiers ?? [])];

function makePromise(record) {
  const reports = record.reports_per_person, several = reports > 1 ? ` All ${formatNumber(reports)} reports of a person share it.` : " A person reports once, in one round, and spends it there.";
  const others = listGroups(record).filter(({ epsilon }) => epsilon !== null).map((group) => `, or ${describePromise(group).toLowerCase()} among people of ${group.name}`).join("");
  return [el("p", { class: "recommended" }, record.epsilon === null ? "Nobody is promised anything: this is a baseline." : ["Each person is promised ", el("strong", {}, describePromise(record).toLowerCase()), `${others}.${several}`])];
}

/** One claim, with what the best attack achieves in plain words. */
function makeClaim(claim, risk) {
  const title = `Against ${claim.adversary}`;
  if (claim.epsilon === null) return el("div", { class: "claim" }, el("h3", {}, title), el("p", {}, `${capitalize(claim.proof)}.`));
  return el("div", { class: "claim" }, el("h3", {}, title), risk ? makeGuessing(risk.guesses, risk.advantage) : null,
    makeFactList([["Claim", describePromise(claim)], ["Protects", claim.protects], ["Proof", `${claim.proof}${claim.exact ? "; exact" : "; an upper bound"}`]]));
}

function makeGuessing(guesses, advantage) {
  const meter = el("meter", { min: "0.5", max: "1", low: "0.6", high: "0.8", optimum: "0.5", value: String(guesses), "aria-label": "How often the best attacker guesses right" }, formatPercent(guesses));
  return [meter, el("p", {}, `Somebody there who suspects that you told one of two things guesses right at most ${roundPerHundred(guesses)} times of 100, whatever else they know and however they attack. Without your report it is 50.`),
    el("p", { class: "muted" }, `Their membership advantage, the rate of true alarms less that of false ones, is ${formatFigure(advantage, 3)} at most.`)];
}

/** Times of a hundred, rounded up. */
export const roundPerHundred = (share) => formatFigure(share > 0.995 ? Math.ceil(10_000 * share) / 100 : Math.ceil(1000 * share) / 10);

function makeAssumptions(texts) {
  if (!texts.length) return null;
  return el("div", {}, el("h3", {}, "What nobody can compute, and the promise rests on"), el("ul", {}, texts.map((text) => el("li", {}, capitalize(text)))));
}

function makeGroup(record) {
  return el("div", { class: "claim" }, el("h3", {}, `People of ${record.name}`), el("p", {}, `${describePromise(record)}.`),
    makeRounds(`rounds-${record.name}`, `Rounds of ${record.name}`, record));
}

function makeRounds(id, title, { rounds: rows, planned }) {
  if (!rows.length) return planned ? el("p", {}, `No round yet. The first asks ${formatCount(planned.batch_size, "person", "people")}: ${describeMechanism(planned.mechanism)}.`) : null;
  const columns = ["version", "people asked", "people counted on", "reports", "released", "randomized by"];
  return makeDetails(`${id}-more`, title, makeTable(id, title, columns, [...rows].reverse().map((row) =>
    [row.version, row.batch_size, row.honest, row.received, row.released, describeMechanism(row.mechanism)])));
}

/** How reports are randomized: the kind, and its plain parameters. */
export function describeMechanism({ type, ...parameters }) {
  const texts = Object.entries(parameters).filter(([, value]) => typeof value === "number" || typeof value === "boolean")
    .map(([name, value]) => `${spaceWords(name)} ${formatCell(value)}`);
  return [spaceWords(type), ...texts].join(", ");
}
