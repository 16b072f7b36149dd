// @ts-check
/**
 * What a server publishes of an experiment as JSON: what its policy is, and what was found. Types alone; `/openapi.json` has
 * the same. Tell parts and policies apart by their `kind`.
 */

/** @typedef {"open" | "paused" | "draining" | "stopped" | "finished" | "failed"} Status */
/** @typedef {string | boolean | number | null} Cell */
/**
 * What a figure is: `low` and `high` are the ends of the interval of the column before them.
 * @typedef {"words" | "yes or no" | "number" | "count" | "share" | "probability" | "reward" | "difference" | "time" | "low" | "high"} Kind
 */
/**
 * A figure or a word with its name; null: it is not known, or there is none.
 * @typedef {{name: string, value: Cell, kind: Kind}} Fact
 */
/** @typedef {{kind: "table", title: string, columns: {name: string, kind: Kind}[], rows: Cell[][]}} Table */

/**
 * Whom a bin holds, by one feature: an interval of its numbers, or some of its values.
 * @typedef {{kind: "between", feature: string, low: number, high: number, missing: boolean}} Between
 * @typedef {{kind: "among", feature: string, values: (string | boolean | number)[], missing: boolean}} Among
 */
/**
 * A box of contexts: its corners along the columns, from 0 to 1, and a condition on each feature that it restricts.
 * @typedef {{lower: number[], upper: number[], where: (Between | Among)[]}} Bin
 */
/**
 * The share of people who get each option, by its name; those that nobody gets may be left out.
 * @typedef {Record<string, number>} Shares
 */

/** @typedef {{kind: "bins", columns: string[], bins: (Bin & {arms: Shares})[]}} BinShares */
/**
 * Where everybody gets the same, there is one group.
 * @typedef {{kind: "groups", groups: {name: string, arms: Shares}[]}} GroupShares
 */
/**
 * What each term adds to the mean reward of an option; `link` turns the sum into a mean reward.
 * @typedef {{kind: "coefficients", link: string, unit: string, shared: Record<string, number>, arms: Record<string, Record<string, number>>}} Coefficients
 */
/**
 * How often everybody plays each action, which may still be the best, and who is asked.
 * @typedef {{kind: "plays", plays: Record<string, number>, active: string[], people: number, draw: {seed: number, start: number, places: number}}} PlayCounts
 */
/**
 * A point of a set by its coordinates; how far from it people's points are, where it is about people's points.
 * @typedef {{kind: "point", centre: Record<string, number>, average: Record<string, number> | null, nearest: number | null, farthest: number | null}} Point
 */
/**
 * A policy: whom it gives what.
 * @typedef {{algorithm: string, version: number, shows: BinShares | GroupShares | Coefficients | PlayCounts | Point, facts: Fact[]}} PolicyView
 */

/**
 * An estimate and its interval; `at_bound`: it came out beyond what is possible.
 * @typedef {{name: string, value: number, low: number, high: number, at_bound: boolean, people: number | null}} Estimate
 */
/**
 * Why an effect is decided, or why not.
 * @typedef {"decided better" | "decided worse" | "decided at an earlier look" | "its interval holds 0"
 *   | "its interval excludes 0, but not after the correction for several effects"
 *   | "its test decided at an earlier look, but its interval holds 0 again" | "it rests on a few large rewards" | "too few of the rarer outcome"
 *   | "too few people in an arm" | "no outcome of an arm counts, as far as noise tells"
 *   | "too few people beside the noise" | "its share of people is not told from 0" | "too few people since the last look"
 *   | "rewards vary too little for their bounds"} Reason
 */
/**
 * How much better an option is than the control; a group of null is everybody, figures of null are not known.
 * @typedef {{arm: string, group: string | null, value: number | null, low: number | null, high: number | null, reason: Reason,
 *   people: number | null, p_value: number | null, detectable: number | null, contribution: number | null, remark: string,
 *   bounds: [number, number] | null}} Effect
 */
/**
 * What a recommendation rests on.
 * @typedef {"decided against all other options" | "decided against the control alone" | "decided on average alone"
 *   | "ahead, and not decided" | "kept, as nothing is decided to be better" | "too few people to say" | "everybody gets it from now on"} Basis
 */
/**
 * What choosing by context earns over one option for all.
 * @typedef {{arm: string, value: number | null, low: number | null, high: number | null, people: number | null, means: Estimate[]}} Gain
 */

/** @typedef {{kind: "rules", rules: {group: string, arm: string, basis: Basis}[]}} Recommendations */
/** @typedef {{kind: "bin means", columns: string[], bins: (Bin & {means: Estimate[]})[], confidence: number}} BinMeans */
/** @typedef {{kind: "intervals", title: string, of: Kind, estimates: Estimate[]}} Intervals */
/**
 * What people lose who get an option, on average; expected is null where an option has no interval.
 * @typedef {{name: string, expected: number | null, most: number}} Loss
 * @typedef {{kind: "losses", expected_losses: Loss[]}} Losses
 */
/**
 * Effects at every look; null where nothing was known then.
 * @typedef {{arm: string, group: string | null, values: (number | null)[], lows: (number | null)[], highs: (number | null)[]}} EffectPath
 * @typedef {{kind: "over time", people: number[], effects: EffectPath[]}} EffectsOverTime
 */
/** @typedef {{kind: "guardrail", name: string, effects: Effect[]}} GuardrailEffects */
/** @typedef {{kind: "figures", title: string, facts: Fact[]}} Figures */
/** @typedef {{kind: "drift test", detected: boolean, evidence: number, false_alarm_rate: number, since: number | null}} DriftTest */
/** @typedef {{kind: "features", people: number, candidates: number, kept: string[] | null, gains: Record<string, number> | null}} FeatureSelection */
/** @typedef {{kind: "half-lives", used: number | null, candidates: (number | null)[], probabilities: number[] | null}} HalfLives */
/**
 * @typedef {Recommendations | BinMeans | Intervals | Losses | Point | EffectsOverTime | GuardrailEffects | Figures | DriftTest | FeatureSelection
 *   | HalfLives | Table} AnswerPart
 */
/**
 * What a learner has found so far; before the first report it says nothing.
 * @typedef {{stage: "learning" | "ended" | "failed", people: number | null, rounds: number | null, confidence: number | null,
 *   recommended: string | null, basis: Basis | null, stop_reason: "its rule" | "its horizon" | "an operator" | "its rows" | null,
 *   estimates: Estimate[], effects: Effect[], gain: Gain | null, warnings: string[], parts: AnswerPart[]}} Answer
 */
/**
 * `GET /experiments/NAME/policy`.
 * @typedef {{experiment: string, version: number, model: string, batch_size: number, sealed_size: number, messages: number, least: number,
 *   deadline: number | null, key_id: string, digest: string, policy: PolicyView}} PublishedPolicy
 */
/**
 * `GET /experiments/NAME/state`.
 * @typedef {{experiment: string, version: number, status: Status, round: {received: number, batch_size: number, deadline: number | null},
 *   answer: Answer}} PublishedState
 */
/**
 * How sure it is that an option is the best: decided by a test, or by the learner's model with a probability of .98 or .9.
 * @typedef {"decided" | "decided against the control" | "decided on average" | "almost certain" | "likely" | "not known"} ConfidenceLabel
 */
/**
 * The finding in a sentence and in parts; how much more reward than the control's, where that is known.
 * @typedef {{finding: "nothing yet" | "rules" | "scores" | "one arm" | "point" | "failed", sentence: string, confidence_label: ConfidenceLabel,
 *   arm: string | null, control: string | null, value: number | null, low: number | null, high: number | null,
 *   compared: string | null}} Headline
 */
/**
 * An option for those to whom no rule before it applies, in words and as conditions that all hold.
 * @typedef {{people: string, where: (Between | Among)[], arm: string, share: number, mean: number | null, next_best: string | null,
 *   difference: number | null, probability_best: number | null, confidence_label: ConfidenceLabel}} Rule
 * @typedef {{rules: Rule[], gain_kept: number | null, people: string, source: "counted" | "asked" | "declared" | "assumed"}} Rules
 */
/**
 * What follows from an answer: which option, for whom, how much better, how sure, and what it cost in privacy.
 * @typedef {{headline: Headline, people: number | null, rounds: number | null,
 *   reward: {low: number, high: number, sentence: string},
 *   privacy: {model: string, epsilon: number | null, delta: number, sentence: string, tiers: Record<string, number>}, rules: Rules | null, gain: Gain | null,
 *   is_measured: boolean, means: [number, number] | null, over_chance: Estimate | null, control: string | null, baseline: Estimate | null,
 *   no_relative: string | null, effects: Effect[], estimates: Estimate[],
 *   confidence: number | null, expected_losses: Loss[], next_steps: string[], warnings: string[]}} Conclusion
 */
/**
 * What has become of each of the people who are planned: planned + replaced = counted + held + refused + not_asked +
 * out_of_reach + unknown. `at_shuffler` is null where that cannot be seen; `needed` is how many more close the open round.
 * @typedef {{in_open_round: number, at_shuffler: number | null, needed: number}} HeldReports
 * @typedef {{planned: number, counted: number, held: HeldReports, refused: Record<string, number>, not_asked: number,
 *   out_of_reach: number, replaced: number, unknown: number}} People
 */
/**
 * `GET /experiments/NAME/answer`.
 * @typedef {{experiment: string, version: number, status: Status, algorithm: string, began: string | null, people: null,
 *   conclusion: Conclusion, result: Answer}} PublishedAnswer
 */
/**
 * What `privateer export NAME FILE.json` writes.
 * @typedef {{format: "privateer/export/3", experiment: string, version: number, status: Status, spec: Record<string, unknown>,
 *   policy: PolicyView, result: Answer | null, record: Record<string, unknown>, state: string, publication: string,
 *   publication_digest: string, digest: string}} ExportDocument
 */

export {};
