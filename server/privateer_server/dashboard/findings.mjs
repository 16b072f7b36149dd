// What the experiment has found: what was decided, estimates with their intervals, and whatever else its answer has.

import { decidedInWords, effectParts, endedInWords, restsOn } from "./decisions.mjs";
import { el, replace } from "./dom.mjs";
import { effectsFinding, estimatesFinding } from "./estimates.mjs";
import { render } from "./render.mjs";
import { confidence, many } from "./words.mjs";

const FEW = 200;

/** The panel; what somebody has opened stays open. */
export class FindingsPanel {
  show(place, facts, { answer: { found: answer } }, width) {
    const about = { answer, width, options: facts.spec?.experiment?.arms ?? [], features: facts.spec?.context?.features };
    replace(place, few(facts.accepted), restsPart(answer, facts),
      effectParts(answer).map(({ id, title, effects }) => effectsFinding(id, title, effects, width)),
      answer.effects.length ? null : estimatesFinding("estimates", "Estimates", answer.estimates, "reward", width),
      answer.gain ? gainParts(answer.gain, width) : null,
      answer.parts.map((part, n) => render(part, { ...about, id: `part-${n}` })));
  }
}

function few(accepted) {
  if (accepted === 0) return el("p", { class: "note" }, "No report has been counted.");
  if (accepted >= FEW) return null;
  return el("p", { class: "note" }, `Only ${many(accepted, "report has", "reports have")} come. What is said of so few may well be wrong: read the intervals.`);
}

/** How many effects are decided, how sure intervals are, what figures rest on, and what ended it. */
function restsPart(answer, facts) {
  const told = [decidedInWords(answer), answer.confidence === null ? "" : `Intervals hold with ${confidence(answer.confidence)} confidence, the noise of privacy included.`,
    restsOn(answer), endedInWords(answer) || soFar(answer, facts)].filter(Boolean);
  return told.length ? el("p", { class: "muted" }, told.join(" ")) : null;
}

/** How many reports have come, where the figures rest on fewer. */
const soFar = ({ people }, { accepted }) => (people === accepted ? "" : `So far ${many(accepted, "report has", "reports have")} come.`);

/** What choosing by context earns: the difference, and the mean rewards of both where they are known. */
function gainParts({ option, value, low, high, people, means }, width) {
  const title = "Gain of choosing by context", name = `over ${option} for all`;
  if (value === null) return el("div", { class: "finding" }, el("h3", {}, title), el("p", {}, `Nothing is known of it yet, ${name}.`));
  return [estimatesFinding("gain", title, [{ name, value, low: low ?? -Infinity, high: high ?? Infinity, people }], "difference", width),
    estimatesFinding("gain-means", "Mean rewards of both", means, "reward", width)];
}
