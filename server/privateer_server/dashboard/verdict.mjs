// An answer in a few words, as a list shows it. Pure: no page is needed.

import { formatFigure, formatCount, shorten } from "./words.mjs";

const OPTION_MAX = 40;

const ahead = ({ value }) => (value === null ? "" : ` ${value >= 0 ? "+" : "–"}${formatFigure(Math.abs(value), 2)}`);

const WORDS = {
  "nothing yet": () => "No result yet",
  failed: () => "It failed",
  rules: ({ confidence_label }, rules) => `Depends on the person: ${formatCount(rules?.rules.length ?? 0, "rule")}, ${confidence_label === "not known" ? "not sure" : confidence_label}`,
  scores: ({ confidence_label }) => `Each person's features decide, ${confidence_label === "not known" ? "not sure" : confidence_label}`,
  "one arm": (headline) => (headline.arm === null || headline.confidence_label === "not known" ? "No option is known to be best" :
    `${shorten(headline.arm, OPTION_MAX)}${headline.compared && headline.compared !== headline.arm ? "" : ahead(headline)}, ${headline.confidence_label}`),
  point: () => "A point of the set is known",
};

/** What was found, in about six words; rules that give everybody the same option name it. */
export function verdict({ headline, rules }) {
  const only = headline.finding === "rules" && rules?.rules.length === 1 ? { ...headline, finding: "one arm", arm: rules.rules[0].arm } : headline;
  return Object.hasOwn(WORDS, only.finding) ? WORDS[only.finding](only, rules) : headline.sentence;
}
