import assert from "node:assert/strict";
import { test } from "node:test";

import { describeBaseline, makeEffectRows, describeGainKept, makeLossRows, makeRuleRows, describeConfidence, chooseRulesTitle } from "../../server/privateer_server/dashboard/answer.mjs";

const RULE = { people: "x1 below 0.5", where: [], arm: "left", share: 0.5, mean: 0.7, next_best: "right", difference: -0.02, probability_best: 0.9999, confidence_label: "almost certain" };

test("a rule says who gets what, and a probability is never rounded to certainty", () => {
  const [[who, gets, how, people, , , ahead]] = makeRuleRows({ rules: [RULE] });
  assert.deepEqual([who, gets, people, ahead], ["x1 below 0.5", "left", "50 %", "–0.02"]);
  assert.equal(how, "above 99 %, almost certain");
});

test("what a test has not decided is not said to be likely", () => {
  assert.equal(describeConfidence({ probability_best: null, confidence_label: "not known" }), "not decided");
  assert.equal(describeConfidence({ probability_best: null, confidence_label: "decided" }), "decided");
});

test("rules say how much of the gain they keep, unless everybody gets the same", () => {
  assert.equal(describeGainKept({ rules: [RULE, RULE], gain_kept: 0.98 }), "These 2 rules have 98 % of the gain of the whole policy.");
  assert.equal(describeGainKept({ rules: [RULE], gain_kept: null }), "");
});

test("rules are advice only where nothing else is better", () => {
  assert.equal(chooseRulesTitle({ finding: "rules", confidence_label: "likely", arm: null }, [RULE, RULE]), "Who should get what");
  assert.equal(chooseRulesTitle({ finding: "one arm", confidence_label: "almost certain", arm: "left" }, [RULE]), "Who should get what");
  assert.equal(chooseRulesTitle({ finding: "one arm", confidence_label: "almost certain", arm: "left" }, [RULE, RULE]), "What each gets at the end, which is worse than left for everybody");
  assert.equal(chooseRulesTitle({ finding: "rules", confidence_label: "not known", arm: null }, [RULE]), "What each gets at the end, which is not known to be best");
});

const effect = (more) => ({ arm: "new", group: null, value: 0.0213, low: 0.0041, high: 0.0386, reason: "decided better", people: 9000, ...more });

test("effects among everybody come first, with what they are of the control's mean reward", () => {
  const open = effect({ group: "all but one", reason: "its interval holds 0" }), decided = effect({ group: "old" });
  assert.deepEqual(makeEffectRows([open, decided, effect({})], null).map((row) => row[1]), ["everybody", "old", "all but one"]);
  const rows = makeEffectRows([effect({ group: "young", value: -0.5, low: -0.9, high: -0.1 }), effect({}), effect({ arm: "old", value: null, low: null, high: null, reason: "too few people beside the noise" })], { value: 0.05, low: 0.04 });
  assert.deepEqual(rows, [["new", "everybody", "+0.021", "+0.004 to +0.039", "+42.6 %", "decided better"],
    ["old", "everybody", null, null, null, "too few people beside the noise"],
    ["new", "young", "–0.5", "–0.9 to –0.1", null, "decided better"]]);
  assert.equal(makeEffectRows([effect({})], null)[0][4], null);
  assert.equal(makeEffectRows([effect({})], { value: 0.05, low: -0.01 })[0][4], null);
});

test("why a share of the control's mean is not told is said", () => {
  const baseline = { value: 0.05, low: -0.01, high: 0.11 }, missing = "no relative effects: the control's mean may be 0 or less";
  assert.equal(describeBaseline({ baseline, control: "now", no_relative: missing }, makeEffectRows([effect({})], baseline)),
    "now has a mean reward of 0.05 in all segments together. No relative effects: the control's mean may be 0 or less.");
  const known = { ...baseline, low: 0.04, high: 0.06 }, ofSegments = "no relative effects of segments: the control's mean in each is not estimated";
  assert.equal(describeBaseline({ baseline: known, control: "now", no_relative: ofSegments }, makeEffectRows([effect({}), effect({ group: "old" })], known)),
    "now has a mean reward of 0.050 in all segments together. A relative effect is a share of that. No relative effects of segments: the control's mean in each is not estimated.");
});

test("losses are the largest first, expected and at most", () => {
  const losses = [{ name: "new: old people", expected: 0.001, most: 0.002 }, { name: "new: young people", expected: 0.004, most: 0.05 }, { name: "now: nobody's interval", expected: null, most: 0.001 }];
  assert.deepEqual(makeLossRows(losses).map(([name]) => name), ["new: young people", "new: old people", "now: nobody's interval"]);
  assert.deepEqual(makeLossRows(losses)[0].slice(1), ["0.004", "0.05"]);
  assert.deepEqual(makeLossRows(losses)[2].slice(1), [null, "0.001"]);
});
