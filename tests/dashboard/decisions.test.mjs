import assert from "node:assert/strict";
import { test } from "node:test";

import * as decisions from "../../server/privateer_server/dashboard/decisions.mjs";

const HOLDS = "its interval holds 0", FEW = "too few people beside the noise", CORRECTED = "its interval excludes 0, but not after the correction for several effects";
const effect = (group, reason, value = 0.1) => ({ arm: "treated", group, value, low: value === null ? null : value - 0.2, high: value === null ? null : value + 0.2, reason, people: 100, p_value: null, detectable: null, contribution: null, remark: "" });
// As an experiment like trial-curve has them: losses are small beside what is undecided, and come last.
const CURVE = Array.from({ length: 64 }, (_, n) => (n >= 57 ? effect(`x${n}`, "decided worse", -0.01) : n % 3 ? effect(`x${n}`, HOLDS, 0.5) : effect(`x${n}`, FEW, null)));

test("every decided effect is drawn at once, and the others are a click away", () => {
  const [{ effects }] = decisions.makeEffectParts({ effects: CURVE }), [shown, others] = decisions.splitRows(decisions.makeEffectRows(effects));
  assert.deepEqual(shown.slice(0, 7).map(({ label }) => label), CURVE.slice(57).map(({ group }) => `${group} · treated`));
  assert.equal(shown.length, 40);
  assert.equal(shown.length + others.length, 64);
  assert.ok(others.every(({ decided }) => !decided));
  assert.equal(others.at(-1).value, null);
});

test("more decided effects than there is usually room for are all drawn", () => {
  const rows = decisions.makeEffectRows(Array.from({ length: 90 }, (_, n) => effect(`x${n}`, ["decided better", "decided worse", "decided at an earlier look"][n % 3])));
  assert.equal(decisions.splitRows(rows)[0].length, 90);
});

test("a mark says whether it is decided, and whether 0 in the interval is why not", () => {
  const marks = (reason) => decisions.chooseMark({ decided: decisions.isDecided(reason), reason });
  assert.deepEqual(["decided better", "decided worse", "decided at an earlier look", HOLDS, CORRECTED].map(marks), ["square", "square", "square", "ring", "diamond"]);
  assert.equal(decisions.chooseMark({ decided: null }), "disc");
});

test("reasons are counted, decided ones first", () => {
  assert.equal(decisions.countReasons(decisions.makeEffectRows(CURVE)), `decided worse: 7; ${FEW}: 19; ${HOLDS}: 38`);
  assert.equal(decisions.describeDecided({ effects: CURVE }), "Of 64 effects, 0 are decided better and 7 worse.");
  assert.equal(decisions.describeDecided({ effects: [effect("x", "decided at an earlier look")] }), "Of 1 effect, 0 are decided better and 0 worse, and 1 at an earlier look.");
  assert.equal(decisions.describeDecided({ effects: [effect("x", HOLDS)] }), "None of 1 effect is decided.");
});

test("what ended it is said as it was", () => {
  const said = (reason, stage = "ended") => decisions.describeEnd({ stop_reason: reason, stage });
  assert.match(said("its horizon"), /^Its horizon ended it/);
  assert.match(said("its rule"), /^The rule that it declared/);
  assert.match(said("an operator"), /^An operator stopped it/);
  assert.match(said(null, "failed"), /^It failed/);
  assert.match(said("a storm"), /a storm/);
  assert.equal(said(null), "Nobody is asked any more.");
  assert.equal(said(null, "learning"), "");
});

test("figures say what they rest on, as far as that is known", () => {
  assert.equal(decisions.describeBasis({ people: 1, rounds: null }), "The figures rest on 1 person.");
  assert.equal(decisions.describeBasis({ people: 4500, rounds: 9 }), "The figures rest on 4,500 people in 9 rounds.");
  assert.deepEqual([{ people: 0, rounds: 0 }, { people: null, rounds: null }].map(decisions.describeBasis), ["", ""]);
});

test("averages are drawn apart, and where effects are together they say whom they are about", () => {
  const effects = [effect("x", HOLDS), effect(null, "decided better", 0.3)];
  assert.deepEqual(decisions.makeEffectParts({ effects }).map(({ title }) => title), ["Effects against the control, by group", "Average effects"]);
  assert.deepEqual(decisions.makeEffectParts({ effects: effects.slice(1) }).map(({ title }) => title), ["Effects against the control"]);
  assert.deepEqual(decisions.makeEffectRows(effects).map(({ label }) => label), ["x · treated", "everybody · treated"]);
  assert.deepEqual(decisions.makeEffectRows(effects.slice(1)).map(({ label }) => label), ["treated"]);
});

test("effects have names, intervals and whether they are decided; an open end is open, and what is not known has no value", () => {
  const rows = decisions.makeEffectRows([{ ...effect("x", "decided better", 0.1), low: 0.05, high: 0.2 }, effect("y", FEW, null), { ...effect("z", HOLDS, -0.1), low: null, high: 0.2 }]);
  assert.deepEqual(rows.map(({ label, value, low, high, decided }) => [label, value, low, high, decided]), [["x · treated", 0.1, 0.05, 0.2, true],
    ["y · treated", null, -Infinity, Infinity, false], ["z · treated", -0.1, -Infinity, 0.2, false]]);
  assert.equal(rows[1].reason, FEW);
});

test("effects over time are a series each, those first that are decided now; looks without a figure are left out", () => {
  const path = (group, values) => ({ arm: "treated", group, values, lows: values.map((one) => one && one - 1), highs: values.map((one) => one && one + 1) });
  const parts = { people: [10, 20], effects: [path("x", [1, 1.5]), path("y", [3, null]), path("z", [null, null])] };
  const [first, second, ...others] = decisions.makePaths(parts, [effect("x", HOLDS), effect("y", "decided better")]);
  assert.deepEqual([first.label, second.label, others], ["y · treated", "x · treated", []]);
  assert.deepEqual(second.points, [{ at: 10, value: 1, low: 0, high: 2 }, { at: 20, value: 1.5, low: 0.5, high: 2.5 }]);
  assert.equal(first.points.length, 1);
});
