// @ts-check
/** Whatever a server publishes, a device refuses it in words or follows it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { PrivateerError } from "../src/errors.js";
import { Participation } from "../src/participation.js";
import { LIMITS } from "../src/verification.js";
import { vectors } from "./support/vectors.js";

const told = vectors("publications");
/** Publications of all families and trust models. */
const more = vectors("decisions").filter((/** @type {any} */ { name }) => !told.some((/** @type {any} */ one) => one.name === name));
const TRIES = 400;
const ALL = { ...LIMITS, arms: /** @type {const} */ ("hidden"), epsilon: Infinity, local_epsilon: 20, delta: 0.5, curator: true };

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
