// An answer in a few words, as a list shows it. Pure: no page is needed.

import { figure, many, shortened } from "./words.mjs";

const OPTION_MAX = 40;

const ahead = ({ value }) => (value === null ? "" : ` ${value >= 0 ? "+" : "–"}${figure(Math.abs(value), 2)}`);

const WORDS = {
  "nothing yet": () => "No result yet",
  failed: () => "It failed",
  rules: ({ sureness }, rules) => `Depends on the person: ${many(rules?.rules.length ?? 0, "rule")}, ${sureness === "not known" ? "not sure" : sureness}`,
  scores: ({ sureness }) => `Each person's features decide, ${sureness === "not known" ? "not sure" : sureness}`,
  "one option": (headline) => (headline.option === null || headline.sureness === "not known" ? "No option is known to be best" :
    `${shortened(headline.option, OPTION_MAX)}${headline.compared && headline.compared !== headline.option ? "" : ahead(headline)}, ${headline.sureness}`),
  point: () => "A point of the set is known",
};

/** What was found, in about six words; rules that give everybody the same option name it. */
export function verdict({ headline, rules }) {
  const only = headline.finding === "rules" && rules?.rules.length === 1 ? { ...headline, finding: "one option", option: rules.rules[0].option } : headline;
  return Object.hasOwn(WORDS, only.finding) ? WORDS[only.finding](only, rules) : headline.sentence;
}
