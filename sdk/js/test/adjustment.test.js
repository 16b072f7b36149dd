// @ts-check
/** Numbers from before the choice: what a device makes of them, and that nothing shows whether one is known. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { adjustOutcome, adjustments, areSlopes, selectFeatures, subtractExpected, encodeNumbers, computeOffset } from "../src/adjustment.js";
import { PrivateerError } from "../src/errors.js";
import { Participation } from "../src/participation.js";
import { LIMITS } from "../src/verification.js";
import { vectors } from "./support/vectors.js";

const ALL = { ...LIMITS, epsilon: Infinity, local_epsilon: 20, arm_visibility: "hidden", allow_central: true };

/** What a device follows of a vector. @param {string} name */
function followed(name) {
  const { publication } = vectors("decisions").find((/** @type {any} */ one) => one.name === name);
  return Participation.checked(new Uint8Array(Buffer.from(publication, "base64")), "test", /** @type {any} */ (ALL));
}

const MISSING = [null, undefined, NaN, "0.9"];

test("of a number that is missing nothing is subtracted, and a report of it has the same size", async () => {
  const participation = await followed("trial of adjusted rewards under local");
  const { spec } = participation;
  const known = participation.choose({ x1: 0.9, x2: 0.5 }, 1);
  assert.ok(Math.abs((known.offset ?? 0) - -1.5 * (0.9 - 0.4)) < 1e-12);
  for (const missing of MISSING) {
    const values = { x1: missing, x2: 0.5 };
    assert.equal(Math.abs(computeOffset(spec, values)), 0);
    const choice = participation.choose(values, 1);
    assert.equal(adjustOutcome(2, spec, choice.offset ?? 0), 2);
    assert.equal(participation.message(choice).length, participation.message(known).length);
  }
});

test("where a slope is learned, a number that is missing counts as in the middle, and a record of it has the same size", async () => {
  const participation = await followed("trial under none that has learned a slope and learns another");
  const known = participation.choose({ x1: 0.9, x2: 0.25 }, 1);
  assert.deepEqual(known.numbers, [0.9, 0.5]);
  assert.equal(known.offset, 0);
  for (const missing of MISSING) {
    const choice = participation.choose({ x1: missing, x2: missing }, 1);
    assert.deepEqual(choice.numbers, [0.5, 0.5]);
    assert.equal(participation.message(choice).length, 8);
    assert.equal(participation.message(known).length, 8);
  }
  const told = participation.contribution({ ...known, values: [0.6, 0, 0] });
  assert.ok(Math.abs(/** @type {any} */ (told).value - (0.6 - 0.7 * (0.9 - 0.45))) < 1e-12);
  assert.equal(/** @type {any} */ (told).number, 0.5);
  assert.throws(() => selectFeatures(participation.spec, { x1: 1 }), { field: "x2" });
});

test("numbers stay within their bounds, and values within theirs", () => {
  const spec = /** @type {any} */ ({ adjust: adjustments({ a: { low: -1, high: 1 }, b: { mean: 1, slope: 2, correlation: null } }), reward: { low: 0, high: 1 } });
  for (const [value, place] of [[3, 1], [-3, 0], [Infinity, 1], [0.5, 0.75]]) assert.deepEqual(encodeNumbers(spec, { a: value, b: 0 }), [place]);
  assert.equal(computeOffset(spec, { a: 1, b: 1.25 }), 0.5);
  assert.equal(subtractExpected(0.1, [1], [{ slope: 1, mean: 0.5 }]), 0);
  assert.equal(subtractExpected(0.1, [], []), 0.1);
});

test("specs and policies of other adjustments are refused", () => {
  const wrong = [{ mean: 1 }, { mean: 1, slope: 1, low: 0 }, { low: 1, high: 1 }, { low: 0 }, { low: 0, high: "1" }, {}, null];
  for (const one of wrong) assert.throws(() => adjustments({ a: one }), PrivateerError, JSON.stringify(one));
  const slopes = [[{ slope: 1.51, mean: 0 }], [{ slope: NaN, mean: 0 }], [{ slope: 1, mean: 1.01 }], [{ slope: 1 }], [null], "x", [{ slope: 1, mean: 0 }, { slope: 1, mean: 0 }]];
  for (const one of slopes) assert.ok(!areSlopes(one, 1), JSON.stringify(one));
  assert.ok(areSlopes([{ slope: -1.5, mean: 1 }], 1));
  assert.ok(areSlopes([], 0));
});
