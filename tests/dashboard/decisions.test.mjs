import assert from "node:assert/strict";
import { test } from "node:test";

import * as decisions from "../../server/privateer_server/dashboard/decisions.mjs";

const HOLDS = "its interval holds 0", FEW = "too few people beside the noise", CORRECTED = "its interval excludes 0, but not after the correction for several effects";
const effect = (group, reason, value = 0.1) => ({ option: "treated", group, value, low: value === null ? null : value - 0.2, high: value === null ? null : value + 0.2, reason, people: 100 });
// As an experiment like trial-curve has them: losses are small beside what is undecided, and come last.
const CURVE = Array.from({ length: 64 }, (_, n) => (n >= 57 ? effect(`x${n}`, "decided worse", -0.01) : n % 3 ? effect(`x${n}`, HOLDS, 0.5) : effect(`x${n}`, FEW, null)));

test("every decided effect is drawn at once, and the others are a click away", () => {
  const [{ rows }] = decisions.effectParts({ effects: CURVE }), [shown, others] = decisions.parted(rows);
  assert.deepEqual(shown.slice(0, 7).map(({ label }) => label), CURVE.slice(57).map(({ group }) => `${group} · treated`));
  assert.equal(shown.length, 40);
  assert.equal(shown.length + others.length, 64);
  assert.ok(others.every(({ decided }) => !decided));
  assert.equal(others.at(-1).value, null);
});

test("more decided effects than there is usually room for are all drawn", () => {
  const [{ rows }] = decisions.effectParts({ effects: Array.from({ length: 90 }, (_, n) => effect(`x${n}`, n % 2 ? "decided worse" : "decided better")) });
  assert.equal(decisions.parted(rows)[0].length, 90);
});

test("a mark says whether it is decided, and whether 0 in the interval is why not", () => {
  const marks = (reason) => decisions.markOf({ decided: decisions.isDecided(reason), reason });
  assert.deepEqual(["decided better", "decided worse", HOLDS, CORRECTED].map(marks), ["square", "square", "ring", "diamond"]);
  assert.equal(decisions.markOf({ decided: null }), "disc");
});

test("reasons are counted, decided ones first", () => {
  const [{ rows }] = decisions.effectParts({ effects: CURVE });
  assert.equal(decisions.counted(rows), `decided worse: 7; ${FEW}: 19; ${HOLDS}: 38`);
  assert.equal(decisions.decidedInWords({ effects: CURVE }), "Of 64 effects, 0 are decided better and 7 worse.");
});

test("the headline says no more than was decided", () => {
  const said = (result, status = "finished") => decisions.headline(result, status).join("");
  assert.equal(said({ recommended: "b", ground: "decided against all other options" }), "It recommends b: decided against all other options.");
  for (const ground of ["ahead, and not decided", "too few people to say"]) assert.match(said({ recommended: "b", ground }), /^It decided nothing that recommends/);
  assert.doesNotMatch(said({ recommended: "b", ground: null }), /recommends/);
  assert.equal(said({ recommended: null }, "open"), "It recommends no single option so far.");
});

test("what ended it is said as it was", () => {
  assert.match(decisions.endedInWords({ ended: "its horizon", stopped: true }, "finished"), /^Its horizon ended it/);
  assert.match(decisions.endedInWords({ ended: "its rule", stopped: true }, "finished"), /^The rule that it declared/);
  assert.match(decisions.endedInWords({ ended: null, stopped: false }, "stopped"), /^An operator stopped it/);
  assert.equal(decisions.endedInWords({ ended: null, stopped: true }, "finished"), "Nobody is asked any more.");
  assert.equal(decisions.endedInWords({ ended: null, stopped: false }, "open"), "");
});

test("averages are drawn apart, and their tables are not drawn again", () => {
  const result = { effects: [effect("x", HOLDS), effect(null, "decided better", 0.3)] };
  assert.deepEqual(decisions.effectParts(result).map(({ title }) => title), ["Effects against the control, by group", "Average effects"]);
  assert.ok(decisions.repeatsEffects(result, { title: "average effects", columns: ["arm", "effect", "low", "high", "decided", "p"] }));
  assert.ok(!decisions.repeatsEffects(result, { title: "guardrail: refund", columns: ["arm", "effect", "low", "high", "decided"] }));
});
