// The answer: which option, for whom, how much better, how sure, and what it cost; in the server's own sentences.

import { el } from "./dom.mjs";
import { table } from "./tables.mjs";
import { capital, decimalsOf, difference, figure, many, percent } from "./words.mjs";

const EFFECTS = 40;

const signed = (value) => (value === null ? null : `${value >= 0 ? "+" : "–"}${figure(Math.abs(value))}`);

/** How sure it is that a rule's option is the best: a probability by the model, or what a test decided. */
export const sure = ({ certainty, sureness }) => (certainty === null ? (sureness === "not known" ? "not decided" : sureness) : `${percent(certainty)}, ${sureness}`);

/** Rules as rows of a table. */
export const ruleRows = ({ rules }) => rules.map((one) => [one.people, one.option, sure(one), percent(one.share), one.mean, one.next_best, signed(one.difference)]);

/** How much of what the whole policy gains the rules keep, in words; empty where everybody gets the same. */
export const kept = ({ rules, gain_kept: share }) => (share === null ? "" : `These ${many(rules.length, "rule")} have ${percent(share)} of the gain of the whole policy.`);

/** What rules are: advice, or only what people get. */
export function titleOf({ finding, sureness, option }, rules) {
  if (sureness === "not known") return "What each gets at the end, which is not known to be best";
  const worse = finding === "one option" && rules.length > 1;
  return worse ? `What each gets at the end, which is worse than ${option} for everybody` : "Who should get what";
}

function rulesPart({ rules, headline }) {
  if (!rules) return null;
  const title = titleOf(headline, rules.rules);
  const columns = ["who", "gets", "how sure", "people", "mean reward", "next best", "ahead by"];
  return [el("h3", {}, title), table("rules", title, columns, ruleRows(rules), { titled: true }),
    el("p", { class: "muted" }, [rules.rules.length > 1 ? "The first rule that applies decides." : "", kept(rules), rules.people].filter(Boolean).join(" "))];
}

function gainPart({ gain, is_measured: measured, over_chance: chance }) {
  if (!gain || gain.value === null) return null;
  const how = measured ? "measured with people who got one or the other" : "expected by the model and not measured";
  const { value, interval } = difference(gain.value, gain.low, gain.high);
  const any = chance && difference(chance.value, chance.low, chance.high);
  const above = any ? ` Above any option by chance: ${any.value} (${any.interval}).` : "";
  return el("p", {}, `Choosing by context gains ${value} (${interval ?? "no interval"}) over ${gain.option} for everybody, ${how}.${above}`);
}

const rank = ({ group, reason }) => (group === null ? 0 : reason.startsWith("decided") ? 1 : 2);

/** Effects as rows of a table: among everybody first, with what they are of the control's mean reward; then decided ones. */
export function effectRows(effects, baseline) {
  const ranked = [...effects].sort((one, other) => rank(one) - rank(other));
  return ranked.map(({ option, group, value, low, high, reason }) => {
    const said = value === null ? { value: null, interval: null } : difference(value, low, high);
    const share = value === null || group !== null || !(baseline?.low > 0) ? null : `${value < 0 ? "–" : "+"}${percent(Math.abs(value / baseline.value), 1)}`;
    return [option, group ?? "everybody", said.value, said.interval, share, reason];
  });
}

/** What the control's mean reward is, and why an effect is not told as a share of it, in sentences. */
export function baselineInWords({ baseline, control, no_relative: missing }, rows) {
  const mean = baseline && `${control} has a mean reward of ${baseline.value.toFixed(decimalsOf((baseline.high - baseline.low) / 2))} in all segments together.`;
  return [mean, rows.some((row) => row[4] !== null) && "A relative effect is a share of that.", missing && `${capital(missing)}.`].filter(Boolean).join(" ");
}

function effectsPart({ effects, ...rest }) {
  if (!effects.length) return null;
  const rows = effectRows(effects, rest.baseline), title = `Effects against ${rest.control}`;
  const left = rows.length > EFFECTS ? ` ${many(rows.length - EFFECTS, "more effect")} in the findings below.` : "";
  return [el("h3", {}, title), el("p", { class: "muted" }, `${baselineInWords(rest, rows)}${left}`),
    table("answer-effects", title, ["option", "for", "effect", "interval", "relative", "decided?"], rows.slice(0, EFFECTS), { titled: true })];
}

/** What people lose by following it, as rows of a table: the largest first. */
export const lossRows = (losses) => [...losses].sort((one, other) => other.most - one.most).slice(0, EFFECTS).map(({ name, expected, most }) => [name, expected === null ? null : figure(expected), figure(most)]);

function lossPart({ losses }) {
  if (!losses.length) return null;
  const title = "What a person loses by following it";
  return [el("h3", {}, title), el("p", { class: "muted" }, "On average, beside the best option; at most while intervals hold. Where an option has no interval nothing is expected."),
    table("losses", title, ["who gets", "loses, expected", "at most"], lossRows(losses), { titled: true })];
}

/** The panel. */
export function answerPanel({ conclusion }) {
  const { headline, warnings, surer, privacy, reward } = conclusion;
  return [el("p", { class: "recommended" }, headline.sentence), warnings.map((one) => el("p", { class: "note" }, `${capital(one)}.`)), rulesPart(conclusion), gainPart(conclusion), effectsPart(conclusion), lossPart(conclusion),
    surer.map((one) => el("p", {}, one)), el("p", { class: "muted" }, `${privacy.sentence} ${reward.sentence}`)];
}
