// @ts-check
/** Whatever a server publishes, a device refuses it in words or follows it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { PrivateerError } from "../src/errors.js";
import { FeatureSums } from "../src/mechanisms/feature-sums.js";
import { RowSums } from "../src/mechanisms/row-sums.js";
import { decode } from "../src/msgpack.js";
import { Participation } from "../src/participation.js";
import { LIMITS } from "../src/verification.js";
import { packed } from "./support/packed.js";
import { vectors } from "./support/vectors.js";

const told = vectors("publications");
/** Publications of all families and trust models. */
const more = vectors("decisions").filter((/** @type {any} */ { name }) => !told.some((/** @type {any} */ one) => one.name === name));
const TRIES = 400;
const ALL = { ...LIMITS, arm_visibility: /** @type {const} */ ("hidden"), epsilon: Infinity, local_epsilon: 20, delta: 0.5, allow_central: true };

/** Numbers that repeat from run to run. @param {number} seed */
function* drawn(seed) {
  for (let word = seed; ; ) {
    word = (Math.imul(word, 1664525) + 1013904223) >>> 0;
    yield word;
  }
}

/** @param {Uint8Array<ArrayBuffer>} body */
async function survives(body) {
  try {
    const followed = await Participation.checked(body, "test", ALL);
    const context = Object.fromEntries([...followed.spec.features.keys()].map((name) => [name, null]));
    const choice = followed.choose(context);
    assert.ok(Number.isInteger(choice.arm) && choice.arm >= 0 && choice.arm < followed.spec.arms.length);
    if (followed.mechanism) assert.ok((await followed.body(followed.message(choice))).length > followed.round.sealedSize);
    return 1;
  } catch (error) {
    assert.ok(error instanceof PrivateerError, `${/** @type {Error} */ (error).stack}`);
    return 0;
  }
}

test("bytes that are changed, left out or put in", async (t) => {
  for (const [index, one] of [...told, ...more].entries()) {
    await t.test(one.name, async () => {
      const body = new Uint8Array(Buffer.from(one.publication, index < told.length ? "hex" : "base64"));
      assert.equal(await survives(body), 1);
      const numbers = drawn(index + 1);
      const next = (/** @type {number} */ below) => Number(numbers.next().value) % below;
      for (let i = 0; i < TRIES; i++) {
        const changed = body.slice();
        for (let times = 0; times <= next(3); times++) changed[next(body.length)] ^= 1 + next(255);
        await survives(changed);
        await survives(body.slice(0, next(body.length)));
      }
    });
  }
});

test("no bytes, and nesting without end", async () => {
  assert.equal(await survives(new Uint8Array(0)), 0);
  assert.equal(await survives(new Uint8Array(100_000).fill(0x91)), 0);
  assert.equal(await survives(new Uint8Array([0xdd, 255, 255, 255, 255])), 0);
});

/** Where each number of a policy is. @param {any} value @param {string[]} path @returns {Generator<string[]>} */
function* numbers(value, path = []) {
  if (typeof value === "number" || typeof value === "bigint") yield path;
  else if (value && typeof value === "object" && !(value instanceof Uint8Array)) {
    for (const key of Object.keys(value)) yield* numbers(value[key], [...path, key]);
  }
}

/** What no device reads: how many halvings a column has, and the terms of the policy that a gain round measures. */
const UNREAD = /^(design\.blocks\.\d+\.halvings|by_context\..*)$/;

test("numbers that are text: added up they would be something else", async (t) => {
  for (const [index, one] of [...told, ...more].entries()) {
    await t.test(one.name, async () => {
      const [round, spec, policy, ...rest] = decode(new Uint8Array(Buffer.from(one.publication, index < told.length ? "hex" : "base64")));
      const published = (/** @type {any} */ other) => new Uint8Array(packed([round, spec, packed(other), ...rest]));
      assert.equal(await survives(published(decode(policy))), 1);
      for (const path of numbers(decode(policy))) {
        const lie = decode(policy);
        const holder = path.slice(0, -1).reduce((/** @type {any} */ within, key) => within[key], lie);
        const last = path[path.length - 1];
        holder[last] = String(holder[last]);
        const said = path.join(".");
        if (!UNREAD.test(said)) assert.equal(await survives(published(lie)), 0, said);
      }
    });
  }
});

test("sums about all features have whole numbers of arms, answers and scales, and a bound of residuals from 0 to 1", () => {
  const usual = { type: "feature-sums", arms: 2, sizes: [1, 3], value_scales: [4, 5], count_scales: [0, 5], counts_arms: false, below: 1, standard_deviation: 30000 };
  assert.ok(new FeatureSums(usual).sensitivity > new FeatureSums({ ...usual, below: 1e-9 }).sensitivity);
  /** @type {Record<string, any[]>} */
  const lies = {
    arms: ["2", 0, 1.5, null], sizes: [[1, "3"], [1, 0], [1], "13", null], value_scales: [[4, "5"], [0, 0], [4, -5], [4], null], count_scales: [[0, "5"], [0, 0.5], [5], null],
    counts_arms: [0, "false", null], below: ["1e-9", "0.5", true, [0.5], NaN, 0, 2, null], standard_deviation: ["30000", 1, -1, NaN, Infinity, null], more: [1],
  };
  for (const [field, values] of Object.entries(lies)) {
    for (const value of values) assert.throws(() => new FeatureSums({ ...usual, [field]: value }), PrivateerError, `${field} ${value}`);
  }
});

test("sums of rows have whole numbers of arms and coordinates, and a share of second moments up to a third, or 1", () => {
  const ball = { arms: 2, dimension: 3, share: 0.3 };
  const usual = { type: "row-sums", ball, standard_deviation: 300000 };
  assert.ok(new RowSums(usual).shift < new RowSums({ ...usual, ball: { ...ball, share: 0 } }).shift);
  const joint = new RowSums({ ...usual, ball: { ...ball, share: 1 } });
  assert.equal(joint.vectors.coordinates, 2 * (3 + 6));
  assert.ok(Math.abs(joint.shift / (Math.sqrt(8 / 3) * 2 ** 20) - 1) < 1e-5);
  /** @type {Record<string, any[]>} */
  const lies = { arms: ["2", 0, 1.5, 70000, null], dimension: ["3", 0, 1.5, 2000, null], share: ["0.3", -0.1, 0.34, 0.99, NaN, true, null], bound: [1], norm: ["rows"] };
  for (const [field, values] of Object.entries(lies)) {
    for (const value of values) assert.throws(() => new RowSums({ ...usual, ball: { ...ball, [field]: value } }), PrivateerError, `${field} ${value}`);
  }
  for (const value of [null, 1, "rows", undefined]) assert.throws(() => new RowSums({ ...usual, ball: value }), PrivateerError);
  for (const value of ["300000", -1, NaN, Infinity, null]) assert.throws(() => new RowSums({ ...usual, standard_deviation: value }), PrivateerError);
  const random = (/** @type {number} */ count) => Array(count).fill(0n);
  const contribution = { slot: 0, key: -1, value: 1, vector: [], arm: 1, row: [0.5, 0, 0] };
  assert.equal(new RowSums(usual).randomize(contribution, random).length, new RowSums(usual).reportSize);
  for (const row of [[0.5, 0], [0.5, 0, NaN], []]) assert.throws(() => new RowSums(usual).randomize({ ...contribution, row }, random), PrivateerError);
  assert.throws(() => new RowSums(usual).randomize({ ...contribution, value: NaN }, random), PrivateerError);
});
