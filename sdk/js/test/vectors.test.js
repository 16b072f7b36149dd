// @ts-check
/** The client does byte by byte what docs/wire says. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { judgeAnswer } from "../src/delivery.js";
import { shuffledCurve } from "../src/privacy/curves.js";
import { chooseBucket, Layout, sign } from "../src/coins.js";
import { PrivateerError } from "../src/errors.js";
import { encodeColumns } from "../src/features.js";
import { checkProof, verifySigner, openHead } from "../src/log.js";
import { provesConsistency, provesInclusion, leafHash } from "../src/merkle.js";
import { decode } from "../src/msgpack.js";
import { Participation } from "../src/participation.js";
import { RandomizedResponse } from "../src/response.js";
import { LIMITS } from "../src/verification.js";
import { vectors } from "./support/vectors.js";

/** @param {string} text */
const bytes = (text) => new Uint8Array(Buffer.from(text, "hex"));
/** @param {Uint8Array<ArrayBuffer>} some */
const hex = (some) => Buffer.from(some).toString("hex");

test("coins", () => {
  for (const one of vectors("coins")) {
    const rows = [...Array(one.key).fill([]), one.thresholds];
    const layout = new Layout(BigInt(one.seed), rows, one.thresholds.length + 1);
    const hash = layout.hash(one.slot, one.key);
    assert.equal(hash.toString(16).padStart(16, "0"), one.hash);
    assert.equal(layout.group(hash, one.key), one.group);
    assert.equal(sign(hash), one.sign);
    for (const [count, place] of Object.entries(one.buckets)) assert.equal(chooseBucket(hash, Number(count)), place);
  }
});

test("probabilities of randomized response", () => {
  for (const { epsilon, symbols, threshold } of vectors("response")) {
    const found = new RandomizedResponse(epsilon, symbols).threshold;
    // The last digits of an exponential differ between machines.
    assert.ok(Math.abs(Number(found - BigInt(threshold))) <= 2 ** -50 * 2 ** 64, `${epsilon}, ${symbols}`);
  }
});

test("what a shuffled batch costs", () => {
  for (const { epsilon, local_epsilon, symbols, honest, delta } of vectors("amplification")) {
    const found = shuffledCurve(local_epsilon, symbols, honest)(epsilon);
    assert.ok(Math.abs(found - delta) <= 1e-7 * delta + 1e-16, `${found} is not ${delta}`);
  }
});

test("decisions, reports and sealed bytes", async (t) => {
  for (const one of [...vectors("publications"), ...vectors("tiers").publications]) {
    await t.test(one.name, async () => {
      const followed = await Participation.checked(bytes(one.publication), "test", { ...LIMITS, ...one.limits });
      assert.equal(hex(followed.digest), one.digest);
      assert.ok(followed.asks);
      for (const person of one.people) {
        assert.deepEqual(encodeColumns(followed.spec.features, person.context), person.columns);
        const choice = followed.choose(person.context, person.slot);
        assert.equal(followed.spec.arms[choice.arm], person.arm);
        const told = { ...choice, values: followed.policy.read(person.reward, followed.spec) };
        const message = followed.message(told, listed(person.words), person.report_slot);
        assert.equal(hex(message), person.message);
        const body = await followed.body(message, [bytes(person.report_id)], [await pair(person.ephemeral_key, person.body)]);
        assert.equal(hex(body), person.body);
      }
    });
  }
});

/** A source that gives the words of a list. @param {string[]} words */
function listed(words) {
  const left = words.map(BigInt);
  return (/** @type {number} */ count) => left.splice(0, count);
}

/** The ephemeral key of a vector; its public half stands in the body. @param {string} secret @param {string} body */
async function pair(secret, body) {
  const [, sealed] = decode(bytes(body));
  const base64 = (/** @type {Uint8Array<ArrayBuffer>} */ some) => Buffer.from(some).toString("base64url");
  const open = { kty: "OKP", crv: "X25519", x: base64(sealed.slice(0, 32)) };
  const [privateKey, publicKey] = await Promise.all([
    crypto.subtle.importKey("jwk", { ...open, d: base64(bytes(secret)) }, { name: "X25519" }, false, ["deriveBits"]),
    crypto.subtle.importKey("jwk", open, { name: "X25519" }, true, []),
  ]);
  return /** @type {CryptoKeyPair} */ ({ privateKey, publicKey });
}

test("terms that a device accepts or refuses", async (t) => {
  for (const { name, publication, limits, refused, field } of [...vectors("terms"), ...vectors("tiers").terms]) {
    await t.test(name, async () => {
      const joined = Participation.checked(bytes(publication), "test", { ...LIMITS, ...limits });
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

test("what an answer decides", () => {
  /** @type {Record<string, string>} */
  const outcomes = { 202: "accepted", "duplicate-report": "accepted", "round-closed": "late" };
  const open = new Set(["round-unknown", "not-found", "sender-refused"]);
  for (const { status, type } of vectors("uploads").uploads) {
    const reason = (type ?? "").replace("urn:privateer:problem:", "");
    const answer = { status, headers: new Headers(), body: new TextEncoder().encode(JSON.stringify({ type })) };
    const wanted = outcomes[status === 202 ? 202 : reason] ?? (open.has(reason) ? "pending" : "refused");
    assert.equal(judgeAnswer(answer), wanted, reason);
  }
  for (const status of [200, 301, 408, 429, 500, 503]) {
    assert.equal(judgeAnswer({ status, headers: new Headers(), body: new Uint8Array(0) }), "pending");
  }
});

/** The problem that a check ends with; null: none. @param {() => Promise<any>} check */
async function refusal(check) {
  try {
    await check();
    return null;
  } catch (error) {
    return /** @type {PrivateerError} */ (error).type;
  }
}

test("signatures of publications", async () => {
  for (const { name, body, header, known, refused } of vectors("log").signatures) {
    assert.equal(await refusal(() => verifySigner(header, bytes(body), known)), refused, name);
  }
});

test("leaves, inclusion and consistency", async () => {
  const { leaves, inclusion, consistency } = vectors("log");
  for (const { entry, leaf } of leaves) assert.equal(hex(await leafHash(bytes(entry))), leaf);
  for (const { index, size, leaf, root, path, holds } of inclusion) {
    assert.equal(await provesInclusion(bytes(leaf), index, size, path.map(bytes), bytes(root)), holds);
  }
  for (const one of consistency) {
    const [first, second] = [bytes(one.first_root), bytes(one.second_root)];
    assert.equal(await provesConsistency(one.first, first, one.second, second, one.path.map(bytes)), one.holds);
  }
});

test("proofs of the log", async () => {
  const { key, proofs } = vectors("log");
  for (const { name, entry, last, proof, refused } of proofs) {
    const before = last && (await openHead(last, key));
    assert.equal(await refusal(() => checkProof(proof, bytes(entry), key, before)), refused, name);
  }
});
