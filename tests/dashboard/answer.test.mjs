import assert from "node:assert/strict";
import { test } from "node:test";

import { kept, ruleRows, sure } from "../../server/privateer_server/dashboard/answer.mjs";

const RULE = { people: "x1 below 0.5", where: [], option: "left", share: 0.5, mean: 0.7, next_best: "right", difference: -0.02, certainty: 0.9999, sureness: "almost certain" };

test("a rule says who gets what, and a probability is never rounded to certainty", () => {
  const [[who, gets, how, people, , , ahead]] = ruleRows({ rules: [RULE] });
  assert.deepEqual([who, gets, people, ahead], ["x1 below 0.5", "left", "50 %", "–0.02"]);
  assert.equal(how, "above 99 %, almost certain");
});

test("what a test has not decided is not said to be likely", () => {
  assert.equal(sure({ certainty: null, sureness: "not known" }), "not decided");
  assert.equal(sure({ certainty: null, sureness: "decided" }), "decided");
});

test("rules say how much of the gain they keep, unless everybody gets the same", () => {
  assert.equal(kept({ rules: [RULE, RULE], gain_kept: 0.98 }), "These 2 rules have 98 % of the gain of the whole policy.");
  assert.equal(kept({ rules: [RULE], gain_kept: null }), "");
});
