// @ts-check
/** 5,000 people, and of all vectors 12,000, of all families and trust models: Python and JavaScript decide and report alike. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { adjustOutcome } from "../src/adjustment.js";
import { PrivateerError } from "../src/errors.js";

import { RowSums, VectorSymbol } from "../src/mechanisms/index.js";
import { roundToEven } from "../src/numerics.js";
import { Participation } from "../src/participation.js";
import { allotPromise } from "../src/privacy/allotment.js";
import { COARSE, composedCurve } from "../src/privacy/composed.js";
import { groupedCurve, normalCurve, shuffledCurve } from "../src/privacy/curves.js";
import { LIMITS } from "../src/verification.js";
import { share, value, word } from "./support/people.js";
import { vectors } from "./support/vectors.js";

const MASK = (1n << 64n) - 1n;
const GRID = 2 ** 20;
const [SLOT, OWN, REWARD, FACT, NOISE] = [100, 101, 102, 110, 120];

/** @param {string} text */
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
/** No number stands for infinity. @param {Record<string, any>} told */
const limits = (told) => ({ ...LIMITS, ...told, epsilon: told.epsilon ?? Infinity });

/** @param {import("../src/spec.js").Spec} spec @param {number} seed @param {number} person */
function outcome(spec, seed, person) {
  const bits = word(seed, person, REWARD);
  const { low, high } = spec.reward;
  const reward = [null, "good", true][Number(bits % 8n)] ?? (bits % 8n === 0n ? null : low - 0.5 + (high - low + 1) * share(bits));
  const answers = spec.guardrails.map((name, i) => [name, word(seed, person, FACT + i) % 2n === 1n]);
  return spec.guardrails.length ? { reward, ...Object.fromEntries(answers) } : reward;
}

/** All that the distribution of a report depends on, but for the probabilities of the response.
 * @param {any} mechanism @param {any} given @param {(stream: number) => bigint} noise */
function factsOf(mechanism, given, noise) {
  if (mechanism instanceof VectorSymbol) return symbolsOf(mechanism, given, noise);
  if (mechanism instanceof RowSums) return Buffer.from(mechanism.randomize(given, (count) => Array.from({ length: count }, (_, i) => noise(i))));
  if (given.vector.length) return Buffer.from(Int32Array.from(given.vector, (/** @type {number} */ one) => roundToEven(one * GRID)).buffer);
  const sent = [0n, MASK].map((first) => {
    const left = [first, 0n, noise(0)];
    return mechanism.randomize(given, (/** @type {number} */ count) => left.splice(0, count));
  });
  return Buffer.concat([...sent, Buffer.from(Float64Array.of(given.value).buffer)]);
}

/** The own symbols; of several messages those of each, after what is sent by whoever keeps nothing.
 * @param {VectorSymbol} mechanism @param {any} given @param {(stream: number) => bigint} noise */
function symbolsOf(mechanism, given, noise) {
  const own = (/** @type {number} */ slot) => Uint16Array.from(mechanism.nearestSymbols(slot, given.vector)).sort();
  const count = mechanism.messages;
  if (count === 1) return Buffer.from(own(given.slot).buffer);
  const some = Array.from({ length: 2 * count - 1 }, (_, i) => noise(i));
  const words = [...some.slice(0, count - 1), ...Array(count).fill(MASK), ...Array(count).fill(0n), ...some.slice(count - 1)];
  const sent = Buffer.from(mechanism.randomize(given, (number) => words.splice(0, number)));
  assert.equal(words.length, 0);
  const each = Array.from({ length: count }, (_, i) => Buffer.from(own(sent.readUInt32LE(6 * i)).buffer));
  return Buffer.concat([sent, ...each]);
}

/** The arm of a person, and a digest of what decides on their report. @param {Participation} followed @param {number} seed @param {number} person */
function decided(followed, seed, person) {
  const { spec, policy } = followed;
  const tables = Object.entries(spec.tables);
  const context = Object.fromEntries(tables.map(([name, table], i) => [name, value(table, word(seed, person, i))]));
  const coins = (/** @type {number} */ stream) => Number(word(seed, person, stream) >> 32n);
  const choice = followed.choose(context, coins(SLOT));
  const { columns, slot, arm, offset = 0 } = choice;
  const values = policy.read(adjustOutcome(outcome(spec, seed, person), spec, offset), spec);
  const given = { key: -1, value: 0, vector: [], slot: policy.freshCoins ? coins(OWN) : slot, ...followed.contribution({ ...choice, values }, coins(OWN)) };
  const facts = factsOf(followed.mechanism, given, (stream) => word(seed, person, NOISE + stream));
  const all = Buffer.concat([Buffer.from(Float64Array.from(columns).buffer), facts]);
  return { arm, facts: createHash("sha256").update(all).digest().subarray(0, 4).toString("hex") };
}

test("people decide, and what they report is distributed, as in Python", async (t) => {
  const told = vectors("decisions");
  assert.ok(told.length >= 10);
  for (const one of told) {
    await t.test(one.name, async () => {
      const followed = await Participation.checked(bytes(one.publication), "test", limits(one.limits));
      assert.ok(followed.asks);
      const response = /** @type {any} */ (followed.mechanism).response ?? null;
      assert.equal(response && Number(response.symbols), one.symbols);
      // The last digits of an exponential differ between machines.
      const far = response ? Math.abs(Number(response.threshold - BigInt(one.threshold))) : 0;
      assert.ok(far <= 2 ** -50 * 2 ** 64, `${response?.threshold} is not ${one.threshold}`);
      const [arms, facts] = [bytes(one.arms), Buffer.from(one.facts, "base64")];
      for (let person = 0; person < one.people; person++) {
        const found = decided(followed, one.seed, person);
        assert.equal(found.arm, arms[person], `the arm of person ${person}`);
        assert.equal(found.facts, facts.subarray(4 * person, 4 * person + 4).toString("hex"), `the report of person ${person}`);
      }
    });
  }
});

test("what subset selection, grouped bits, normal noise and allotments cost", () => {
  /** @type {any} */
  const { subsets, grouped, composed, normal, allotments } = vectors("curves");
  const near = (/** @type {number} */ found, /** @type {number} */ wanted, digits = 1e-6) =>
    assert.ok(Math.abs(found - wanted) <= digits * wanted, `${found} is not ${wanted}`);
  for (const one of subsets) near(shuffledCurve(one.local_epsilon, one.symbols / one.own_symbols, one.honest)(one.epsilon), one.delta);
  for (const one of grouped) near(groupedCurve(one.local_epsilon, one.honest, one.share)(one.epsilon), one.delta);
  for (const { epsilon, local_epsilon, symbols, own_symbols, honest, repeats, delta } of composed) {
    near(composedCurve(local_epsilon, symbols / own_symbols, honest, repeats)(epsilon), delta);
    const coarse = composedCurve(local_epsilon, symbols / own_symbols, honest, repeats, COARSE)(epsilon);
    assert.ok(coarse >= delta * (1 - 1e-6) && coarse <= 2 * delta, `${coarse} is no bound of ${delta}`);
  }
  for (const one of normal) near(normalCurve(one.standard_deviation, one.sensitivity)(one.epsilon), one.delta);
  for (const one of allotments) {
    const grid = allotPromise(one.epsilon, one.delta, one.reports, one.least);
    if (one.pure) {
      near(grid[0].at, one.pure);
    } else {
      assert.equal(grid.length, 65);
      // Servers leave twice as much room for other machines' digits, so that a device never allows less.
      for (const [found, wanted] of [[grid[0].most, one.first], [grid[10].at, one.at], [grid[10].most, one.later]]) {
        near(found, wanted, 1e-3);
        assert.ok(found >= wanted * (1 - 1e-6));
      }
    }
  }
});

test("terms of records, vectors and several reports that a device accepts or refuses", async (t) => {
  for (const { name, publication, limits: told, refused, field } of vectors("records")) {
    await t.test(name, async () => {
      const joined = Participation.checked(bytes(publication), "test", limits(told));
      if (refused === null) {
        assert.ok((await joined).asks);
      } else {
        await assert.rejects(joined, (error) => {
          assert.ok(error instanceof PrivateerError, String(error));
          assert.equal(error.type, refused);
          if (field) assert.equal(error.field, field);
          return true;
        });
      }
    });
  }
});
