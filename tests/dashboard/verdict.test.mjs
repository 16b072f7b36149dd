import assert from "node:assert/strict";
import { test } from "node:test";

const { verdict } = await import("../../server/privateer_server/dashboard/verdict.mjs");

const headline = (more) => ({ finding: "one arm", sentence: "All of it in words.", confidence_label: "decided", arm: null, control: null, value: null, low: null, high: null, ...more });
const rules = (...options) => ({ rules: options.map((option) => ({ arm: option })) });

test("an answer of every finding in a few words", () => {
  for (const [found, among, said] of [
    [headline({ finding: "nothing yet", confidence_label: "not known" }), null, "No result yet"],
    [headline({ finding: "failed", confidence_label: "not known" }), null, "It failed"],
    [headline({ arm: "new", value: 0.0213, control: "old" }), null, "new +0.021, decided"],
    [headline({ arm: "new", value: -0.5, confidence_label: "likely" }), null, "new –0.5, likely"],
    [headline({ arm: "20% off" }), null, "20% off, decided"],
    [headline({ arm: "new", confidence_label: "not known" }), null, "No option is known to be best"],
    [headline({ finding: "rules", confidence_label: "almost certain" }), rules("a", "b", "a"), "Depends on the person: 3 rules, almost certain"],
    [headline({ finding: "rules", confidence_label: "not known" }), rules("a", "b"), "Depends on the person: 2 rules, not sure"],
    [headline({ finding: "rules", confidence_label: "likely" }), rules("a"), "a, likely"],
    [headline({ finding: "scores", confidence_label: "not known" }), null, "Each person's features decide, not sure"],
    [headline({ finding: "point" }), null, "A point of the set is known"],
  ]) assert.equal(verdict({ headline: found, rules: among }), said);
});

test("a finding of a newer server is its own sentence, and long names are cut", () => {
  assert.equal(verdict({ headline: headline({ finding: "constructor" }), rules: null }), "All of it in words.");
  assert.ok(verdict({ headline: headline({ arm: "x".repeat(300) }), rules: null }).length < 60);
});
