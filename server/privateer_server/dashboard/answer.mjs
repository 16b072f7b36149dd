// The answer: which option, for whom, how much better, how sure, and what it cost; in the server's own sentences.

import { el } from "./dom.mjs";
import { makeTable } from "./tables.mjs";
import { capitalize, decimalsOf, formatDifference, formatFigure, formatCount, formatPercent } from "./words.mjs";

const EFFECTS = 40;

const formatSigned = (value) => (value === null ? null : `${value >= 0 ? "+" : "–"}${formatFigure(Math.abs(value))}`);

/** How sure it is that a rule's option is the best: a probability by the model, or what a test decided. */
export const describeConfidence = ({ probability_best: probability, confidence_label: label }) => (probability === null ? (label === "not known" ? "not decided" : label) : `${formatPercent(probability)}, ${label}`);

/** Rules as rows of a table. */
export const makeRuleRows = ({ rules }) => rules.map((rule) => [rule.people, rule.arm, describeConfidence(rule), formatPercent(rule.share), rule.mean, rule.next_best, formatSigned(rule.difference)]);

/** How much of what the whole policy gains the rules keep, in words; empty where everybody gets the same. */
export const describeGainKept = ({ rules, gain_kept: share }) => (share === null ? "" : `These ${formatCount(rules.length, "rule")} have ${formatPercent(share)} of the gain of the whole policy.`);

/** What rules are: advice, or only what people get. */
export function chooseRulesTitle({ finding, confidence_label, arm }, rules) {
  if (confidence_label === "not known") return "What each gets at the end, which is not known to be best";
  const worse = finding === "one arm" && rules.length > 1;
  return worse ? `What each gets at the end, which is worse than ${arm} for everybody` : "Who should get what";
}

function rulesPart({ rules, headline }) {
  if (!rules) return null;
  const title = chooseRulesTitle(headline, rules.rules);
  const columns = ["who", "gets", "how sure", "people", "mean reward", "next best", "ahead by"];
  return [el("h3", {}, title), makeTable("rules", title, columns, makeRuleRows(rules), { titled: true }),
    el("p", { class: "muted" }, [rules.rules.length > 1 ? "The first rule that applies decides." : "", describeGainKept(rules), rules.people].filter(Boolean).join(" "))];
}

function gainPart({ gain, is_measured: measured, over_chance: chance }) {
  if (!gain || gain.value === null) return null;
  const basis = measured ? "measured with people who got one or the other" : "expected by the model and not measured";
  const { value, interval } = formatDifference(gain.value, gain.low, gain.high);
  const chanceGain = chance && formatDifference(chance.value, chance.low, chance.high);
  const comparison = chanceGain ? ` Above any option by chance: ${chanceGain.value} (${chanceGain.interval}).` : "";
  return el("p", {}, `Choosing by context gains ${value} (${interval ?? "no interval"}) over ${gain.arm} for everybody, ${basis}.${comparison}`);
}

const rank = ({ group, reason }) => (group === null ? 0 : reason.startsWith("decided") ? 1 : 2);

/** Effects as rows of a table: among everybody first, with what they are of the control's mean reward; then decided ones. */
export function makeEffectRows(effects, baseline) {
  const ranked = [...effects].sort((first, second) => rank(first) - rank(second));
  return ranked.map(({ arm, group, value, low, high, reason }) => {
    const text = value === null ? { value: null, interval: null } : formatDifference(value, low, high);
    const share = value === null || group !== null || !(baseline?.low > 0) ? null : `${value < 0 ? "–" : "+"}${formatPercent(Math.abs(value / baseline.value), 1)}`;
    return [arm, group ?? "everybody", text.value, text.interval, share, reason];
  });
}

/** What the control's mean reward is, and why an effect is not told as a share of it, in sentences. */
export function describeBaseline({ baseline, control, no_relative: missing }, rows) {
  const mean = baseline && `${control} has a mean reward of ${baseline.value.toFixed(decimalsOf((baseline.high - baseline.low) / 2))} in all segments together.`;
  return [mean, rows.some((row) => row[4] !== null) && "A relative effect is a share of that.", missing && `${capitalize(missing)}.`].filter(Boolean).join(" ");
}

function effectsPart({ effects, ...rest }) {
  if (!effects.length) return null;
  const rows = makeEffectRows(effects, rest.baseline), title = `Effects against ${rest.control}`;
  const hiddenNote = rows.length > EFFECTS ? ` ${formatCount(rows.length - EFFECTS, "more effect")} in the findings below.` : "";
  return [el("h3", {}, title), el("p", { class: "muted" }, `${describeBaseline(rest, rows)}${hiddenNote}`),
    makeTable("answer-effects", title, ["option", "for", "effect", "interval", "relative", "decided?"], rows.slice(0, EFFECTS), { titled: true })];
}

/** What people lose by following it, as rows of a table: the largest first. */
export const makeLossRows = (losses) => [...losses].sort((first, second) => second.most - first.most).slice(0, EFFECTS).map(({ name, expected, most }) => [name, expected === null ? null : formatFigure(expected), formatFigure(most)]);

function lossPart({ expected_losses: losses }) {
  if (!losses.length) return null;
  const title = "What a person loses by following it";
  return [el("h3", {}, title), el("p", { class: "muted" }, "On average, beside the best option; at most while intervals hold. Where an option has no interval nothing is expected."),
    makeTable("losses", title, ["who gets", "loses, expected", "at most"], makeLossRows(losses), { titled: true })];
}

/** The panel. */
export function answerPanel({ conclusion }) {
  const { headline, warnings, next_steps, privacy, reward } = conclusion;
  return [el("p", { class: "recommended" }, headline.sentence), warnings.map((warning) => el("p", { class: "note" }, `${capitalize(warning)}.`)), rulesPart(conclusion), gainPart(conclusion), effectsPart(conclusion), lossPart(conclusion),
    next_steps.map((sentence) => el("p", {}, sentence)), el("p", { class: "muted" }, `${privacy.sentence} ${reward.sentence}`)];
}
