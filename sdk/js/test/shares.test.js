// @ts-check
/** Shares of votes for two servers, byte by byte as the vectors of docs/wire and those of Python say. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { hex, unhex } from "../src/bytes.js";
import * as circuits from "../src/vdaf/circuits.js";
import { MODULUS, encode, expand } from "../src/vdaf/field.js";
import { shard } from "../src/vdaf/prio3.js";
import { turboshake128 } from "../src/vdaf/turboshake.js";
import { vectors } from "./support/vectors.js";

/** @type {any} */
const VECTORS = vectors("shares");
/** @param {any} vector @param {number[]} [bits] */
function makeShares({ circuit, arguments: values, ...vector }, bits = vector.bits) {
  /** @type {any} */
  const makers = circuits;
  const bytes = ["context", "nonce", "randomness"].map((name) => unhex(vector[name]));
  return shard(makers[circuit](...values), vector.algorithm, bytes[0], bits, bytes[1], bytes[2]);
}

test("shares of each circuit", async (t) => {
  assert.equal(new Set(VECTORS.map((/** @type {any} */ vector) => vector.circuit)).size, 6);
  for (const [number, vector] of VECTORS.entries()) {
    await t.test(`${vector.circuit} ${number}`, () => {
      const shares = makeShares(vector);
      for (const part of /** @type {const} */ (["public", "leader", "helper"])) assert.equal(hex(shares[part]), vector[part]);
    });
  }
});

test("other bits, other shares: a planted defect", () => {
  const [vector] = VECTORS;
  assert.notEqual(hex(makeShares(vector, [...vector.bits].reverse()).leader), vector.leader);
  assert.throws(() => makeShares(vector, [1]), RangeError);
});

test("numbers in bits", () => {
  for (const maximum of [2 ** 49 - 1, 2 ** 53 - 1]) {
    assert.deepEqual(circuits.bitWeights(maximum), Array.from(circuits.bitWeights(maximum), (_, place) => 2 ** place));
    assert.equal(circuits.bitWeights(maximum).length, Math.round(Math.log2(maximum)));
  }
  for (const maximum of [1, 2, 5, 7, 10, 255, 1000]) {
    const weights = circuits.bitWeights(maximum);
    for (let number = 0; number <= maximum; number++) {
      const bits = circuits.encodeNumber(number, maximum);
      assert.equal(bits.reduce((sum, bit, place) => sum + bit * weights[place], 0), number);
      assert.ok(bits.every((bit) => bit === 0 || bit === 1));
    }
  }
});

test("numbers of the hash are below the prime, and the same however many are drawn", () => {
  const message = new TextEncoder().encode("a message");
  const [few, many] = [expand(message, 3), expand(message, 300)];
  assert.deepEqual(many.slice(0, 3), few);
  assert.ok(many.every((number) => number >= 0n && number < MODULUS));
  assert.equal(hex(encode(few)), hex(turboshake128(message, 48)));
});
