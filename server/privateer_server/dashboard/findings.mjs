// What the experiment has found: what was decided, estimates with their intervals, and whatever else its answer has.

import { describeDecided, makeEffectParts, describeEnd, describeBasis } from "./decisions.mjs";
import { el, replace } from "./dom.mjs";
import { makeEffectsFinding, makeEstimatesFinding } from "./estimates.mjs";
import { render } from "./render.mjs";
import { formatConfidence, formatCount } from "./words.mjs";

const FEW = 200;

/** The panel; what somebody has opened stays open. */
export class FindingsPanel {
  show(place, facts, { answer: { result: answer } }, width) {
    const about = { answer, width, options: facts.spec?.experiment?.arms ?? [], features: facts.spec?.context?.features };
    replace(place, makeFewReportsNote(facts.accepted), makeBasisPart(answer, facts),
      makeEffectParts(answer).map(({ id, title, effects }) => makeEffectsFinding(id, title, effects, width)),
      answer.effects.length ? null : makeEstimatesFinding("estimates", "Estimates", answer.estimates, "reward", width),
      answer.gain ? gainParts(answer.gain, width) : null,
      answer.parts.map((part, n) => render(part, { ...about, id: `part-${n}` })));
  }
}

function makeFewReportsNote(accepted) {
  if (accepted === 0) return el("p", { class: "note" }, "No report has been counted.");
  if (accepted >= FEW) return null;
  return el("p", { class: "note" }, `Only ${formatCount(accepted, "report has", "reports have")} come. What is said of so few may well be wrong: read the intervals.`);
}

/** How many effects are decided, how sure intervals are, what figures rest on, and what ended it. */
function makeBasisPart(answer, facts) {
  const sentences = [describeDecided(answer), answer.confidence === null ? "" : `Intervals hold with ${formatConfidence(answer.confidence)} confidence, the noise of privacy included.`,
    describeBasis(answer), describeEnd(answer) || describeReports(answer, facts)].filter(Boolean);
  return sentences.length ? el("p", { class: "muted" }, sentences.join(" ")) : null;
}

/** How many reports have come, where the figures rest on fewer. */
const describeReports = ({ people }, { accepted }) => (people === accepted ? "" : `So far ${formatCount(accepted, "report has", "reports have")} come.`);

/** What choosing by context earns: the difference, and the mean rewards of both where they are known. */
function gainParts({ arm, value, low, high, people, means }, width) {
  const title = "Gain of choosing by context", name = `over ${arm} for all`;
  if (value === null) return el("div", { class: "finding" }, el("h3", {}, title), el("p", {}, `Nothing is known of it yet, ${name}.`));
  return [makeEstimatesFinding("gain", title, [{ name, value, low: low ?? -Infinity, high: high ?? Infinity, people }], "difference", width),
    makeEstimatesFinding("gain-means", "Mean rewards of both", means, "reward", width)];
}
