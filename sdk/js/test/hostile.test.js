// @ts-check
/** Whatever a server publishes, a device refuses it in words or follows it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { PrivateerError } from "../src/errors.js";
import { decode } from "../src/msgpack.js";
import { Participation } from "../src/participation.js";
import { Ball } from "../src/vectors.js";
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

test("a ball says in a number how far its vectors are below 0, and only where rewards may be rare", async () => {
  const lied = (/** @type {any} */ below) => () => new Ball({ norm: "l2", bound: 1, coordinates: 9, below });
  assert.ok(new Ball({ norm: "l2", bound: 1, coordinates: 9, below: 1e-9 }).diameter < 1.5 * 16384);
  for (const below of ["1e-9", "0.5", true, [0.5], NaN, 0, 2, null]) assert.throws(lied(below), PrivateerError, String(below));
  let balls = 0;
  for (const one of more.filter((/** @type {any} */ { name }) => name.startsWith("linear"))) {
    const [round, spec, policy, ...rest] = decode(new Uint8Array(Buffer.from(one.publication, "base64")));
    const lie = decode(policy);
    if (!lie.terms.mechanism.ball) continue;
    balls += 1;
    lie.terms.mechanism.ball.below = 0.01;
    assert.equal(await survives(new Uint8Array(packed([round, spec, packed(lie), ...rest]))), 0, one.name);
  }
  assert.ok(balls > 0);
});
