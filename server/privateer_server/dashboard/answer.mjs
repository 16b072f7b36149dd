// The answer: which option, for whom, how much better, how sure, and what it cost; in the server's own sentences.

import { el } from "./dom.mjs";
import { table } from "./tables.mjs";
import { capital, figure, many, percent } from "./words.mjs";

const signed = (value) => (value === null ? null : `${value >= 0 ? "+" : "–"}${figure(Math.abs(value))}`);
const interval = (low, high) => (low === null || high === null ? null : `${signed(low)} to ${signed(high)}`);

/** How sure it is that a rule's option is the best: a probability by the model, or what a test decided. */
export const sure = ({ certainty, sureness }) => (certainty === null ? (sureness === "decided" ? "decided" : "not decided") : `${percent(certainty)}, ${sureness}`);

/** Rules as rows of a table. */
export const ruleRows = ({ rules }) => rules.map((one) => [one.people, one.option, sure(one), percent(one.share), one.mean, one.next_best, signed(one.difference)]);

/** How much of what the whole policy gains the rules keep, in words; empty where everybody gets the same. */
export const kept = ({ rules, gain_kept: share }) => (share === null ? "" : `These ${many(rules.length, "rule")} have ${percent(share)} of the gain of the whole policy.`);

function rulesPart({ rules, headline }) {
  if (!rules) return null;
  const title = headline.sureness === "not known" ? "What each gets when it ends, which is not known to be best" : "Who should get what";
  const columns = ["who", "gets", "how sure", "people", "mean reward", "next best", "ahead by"];
  return [el("h3", {}, title), table("rules", title, columns, ruleRows(rules), { titled: true }),
    el("p", { class: "muted" }, [rules.rules.length > 1 ? "The first rule that applies decides." : "", kept(rules)].filter(Boolean).join(" "))];
}

function gainPart({ gain, is_measured: measured, over_chance: chance }) {
  if (!gain || gain.value === null) return null;
  const how = measured ? "measured with people who got one or the other" : "expected by the model and not measured";
  const above = chance ? ` Above any option by chance: ${signed(chance.value)} (${interval(chance.low, chance.high)}).` : "";
  return el("p", {}, `Choosing by context gains ${signed(gain.value)} (${interval(gain.low, gain.high) ?? "no interval"}) over ${gain.option} for everybody, ${how}.${above}`);
}

/** The panel. */
export function answerPanel({ conclusion }) {
  const { headline, warnings, surer, privacy, reward } = conclusion;
  return [el("p", { class: "recommended" }, headline.sentence), warnings.map((one) => el("p", { class: "note" }, `${capital(one)}.`)), rulesPart(conclusion), gainPart(conclusion),
    surer.map((one) => el("p", {}, one)), el("p", { class: "muted" }, `${privacy.sentence} ${reward.sentence}`)];
}
