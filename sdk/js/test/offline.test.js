// @ts-check
/** An exported policy decides as in Python, and a file that nobody may decide by is refused in a sentence. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";

import { OfflinePolicy, PrivateerError } from "../src/index.js";
import { formatCanonical } from "../src/offline/canonical.js";
import { PhasedDecider } from "../src/offline/phased.js";
import { DeciderSpec } from "../src/offline/spec.js";
import { Participation } from "../src/participation.js";
import { LIMITS } from "../src/verification.js";
import { value, word } from "./support/people.js";
import { vectors } from "./support/vectors.js";

const SLOT = 100;

/** @param {any} found */
const digest = (found) => createHash("sha256").update(formatCanonical(found)).digest();
/** @param {any} document */
const written = (document) => JSON.stringify(document);
/** A forged document: its digest fits. @param {any} document */
const signed = ({ digest: _, ...rest }) => ({ ...rest, digest: digest(rest).toString("hex") });
const quiet = { warn: () => {} };

const { fetch } = globalThis;
before(() => (globalThis.fetch = () => assert.fail("an offline policy asked the network")));
after(() => (globalThis.fetch = fetch));

/** @param {() => Promise<any>} reading @param {RegExp} words */
const refuses = (reading, words) =>
  assert.rejects(reading, (error) => {
    assert.ok(error instanceof PrivateerError && error.type === "spec-invalid" && error.field === "export", String(error));
    assert.match(error.message, words);
    return true;
  });

const { canonical: plain, exports: told, refused } = vectors("exports");
const PLAIN = told[0].document;

test("canonical JSON", () => {
  for (const one of plain) assert.equal(formatCanonical(one.json), one.canonical);
  assert.throws(() => formatCanonical({ text: "\ud800" }), RangeError);
  assert.throws(() => formatCanonical([1e999]), RangeError);
});

for (const one of told) {
  test(`a file decides as the vectors say: ${one.name}`, async () => {
    const policy = await OfflinePolicy.read(written(one.document), quiet);
    for (const person of one.people) assert.equal(policy.choose(person.context, person.slot), person.arm);
    assert.deepEqual([policy.experiment, policy.version, policy.status, policy.result], ["test", 4, "stopped", null]);
  });
}

/** The features of a document's spec, by which people are made. @param {any} context @param {string[]} names */
const tables = (context, names) => names.map((name) => [name, context.low === undefined && context.features?.[name] || { low: -1, high: 1, ...context }]);

test("people choose offline as in Python, by every algorithm that exports", async (t) => {
  const told = vectors("offline");
  assert.ok(told.length >= 10);
  for (const one of told) {
    await t.test(one.name, async () => {
      const policy = await OfflinePolicy.read(new TextEncoder().encode(written(one.document)), quiet);
      const features = tables(one.document.spec.context ?? {}, policy.features);
      const digests = Buffer.from(one.digests, "base64");
      for (let person = 0; person < one.people; person++) {
        const context = Object.fromEntries(features.map(([name, table], i) => [name, value(table, word(one.seed, person, i))]));
        const chosen = policy.choose(context, Number(word(one.seed, person, SLOT) >> 32n));
        if (person === 0) assert.deepEqual(chosen, one.first);
        assert.deepEqual(digest(chosen).subarray(0, 4), digests.subarray(4 * person, 4 * person + 4), `person ${person}`);
      }
    });
  }
});

test("points of a box have the names that they have in Python", async () => {
  const { document } = vectors("offline").find((/** @type {any} */ one) => one.name === "phased in a box");
  const { options } = await OfflinePolicy.read(written(document), quiet);
  assert.deepEqual([options.length, options[1], options.at(-1)], [129 ** 2, "(0.1, -9.89609375)", "(0.7, 3.3)"]);
  assert.equal(createHash("sha256").update(options.join()).digest("hex"), "b876cce275720545328498d2d1457935cc14fe0a37dd9227c816d640649cf8f3");
});

/** @param {any} actions */
function readBox(actions) {
  const { document } = vectors("offline").find((/** @type {any} */ one) => one.name === "phased in a box");
  return new DeciderSpec({ ...document.spec, actions }, new Map([["phased", PhasedDecider]]));
}

test("a tie of decimals is rounded away from zero, as in Python", () => {
  // The names are in tests/unit/spec/test_box.py, too.
  const nameOf = (/** @type {number} */ low, /** @type {number} */ high, row = 0) => readBox({ low: [low], high: [high] }).options[row];
  assert.equal(nameOf(1 / 256, 128 + 1 / 256), "(0.0039063)");
  assert.equal(nameOf(-1 / 256, 128 - 1 / 256), "(-0.0039063)");
  assert.equal(nameOf(-0.27685546875, -0.26123046875, 2), "(-0.27661132813)");
});

test("a box without sides is refused", () => {
  assert.deepEqual(readBox({ low: [0], high: [128] }).options.slice(0, 2), ["(0)", "(1)"]);
  for (const actions of [{ low: [0], high: [0] }, { low: [1], high: [0] }, { low: [0] }, { low: [0], high: [1, 1] }, { low: Array(7).fill(0), high: Array(7).fill(1) }])
    assert.throws(() => readBox(actions), PrivateerError);
});

test("another policy decides otherwise: the digests would show it", async () => {
  const { document, digests } = vectors("offline").find((/** @type {any} */ one) => one.name === "convex, one point");
  const policy = await OfflinePolicy.read(written(document), quiet);
  policy.decider.centre[0] += 1e-15;
  const found = digest(policy.choose({}, Number(word(0, 0, SLOT) >> 32n))).subarray(0, 4);
  for (let at = 0; at < 2000; at += 4) assert.notDeepEqual(found, Buffer.from(digests, "base64").subarray(at, at + 4));
});

for (const one of refused) {
  test(`a document as in Python: ${one.name}`, async () => {
    const reading = () => OfflinePolicy.read(written(one.document), quiet);
    if (one.refused === null) await reading();
    else await refuses(reading, new RegExp(`^export: ${one.refused.split(";")[0]}`));
  });
}

test("what is no export is refused in words", async () => {
  await refuses(() => OfflinePolicy.read(written(PLAIN).slice(0, -9)), /damaged, or not JSON: give a file/);
  await refuses(() => OfflinePolicy.read(new Uint8Array([255, 254])), /damaged, or not JSON/);
  await refuses(() => OfflinePolicy.read("[]"), /is not an export: give a file/);
  await refuses(() => OfflinePolicy.read(/** @type {any} */ (PLAIN)), /give the file's text/);
  await refuses(() => OfflinePolicy.read(`${"[".repeat(1e5)}${"]".repeat(1e5)}`), /is not an export|not JSON/);
  const { status: _, ...less } = PLAIN;
  await refuses(() => OfflinePolicy.read(written(signed(less))), /the key 'status' is missing/);
  await refuses(() => OfflinePolicy.read(written(signed({ ...PLAIN, more: 1 }))), /there is no key "more"/);
  await refuses(() => OfflinePolicy.read(written(signed({ ...PLAIN, version: "4" }))), /the key 'version' must be a whole number/);
  await refuses(() => OfflinePolicy.read(written(signed({ ...PLAIN, publication: "%" }))), /the key 'publication' must be base64/);
});

/** A forged export of other publication bytes. @param {Buffer} body */
const forged = (body) =>
  signed({ ...PLAIN, publication: body.toString("base64"), publication_digest: createHash("sha256").update(body).digest("hex") });

test("a publication that cannot be followed is refused in words", async () => {
  await refuses(() => OfflinePolicy.read(written(signed({ ...PLAIN, version: 5 }))), /its version is not that of its publication/);
  await refuses(() => OfflinePolicy.read(written(signed({ ...PLAIN, experiment: "other" }))), /cannot be followed: experiment: round, spec and policy disagree/);
  const body = Buffer.from(PLAIN.publication, "base64");
  await refuses(() => OfflinePolicy.read(written(forged(body.subarray(0, 200)))), /cannot be followed: .*update the client library/);
  // One that nobody has, and one that devices in Python have: of the same length, since bytes around it say how long it is.
  for (const other of ['"name":"partitiom"', '"name": "additivf"']) {
    const unknown = Buffer.from(body.toString("latin1").replace('"name":"partition"', other), "latin1");
    assert.notDeepEqual(unknown, body);
    await refuses(() => OfflinePolicy.read(written(forged(unknown))), /cannot be followed: algorithm: this client does not know the algorithm/);
    const joined = Participation.checked(new Uint8Array(unknown), PLAIN.experiment, LIMITS);
    await assert.rejects(joined, /algorithm: this client does not know the algorithm/);
  }
});

for (const [name, wrong] of /** @type {[string, (decider: any) => any][]} */ ([
  ["sparse under central", (decider) => (decider.coefficients[0] = 0.95)],
  ["sparse under central", (decider) => decider.places.reverse()],
  ["phased", (decider) => (decider.support[0] = decider.active[0] + 1000)],
  ["phased", (decider) => (decider.plays[0] = 0)],
  ["convex, one point", (decider) => (decider.centre[0] = 1)],
  ["convex, one point", (decider) => decider.axes[0].fill(0)],
])) {
  test(`a policy that no learner makes is refused: ${name}, ${wrong}`, async () => {
    const { document } = vectors("offline").find((/** @type {any} */ one) => one.name === name);
    const { decider, spec } = await OfflinePolicy.read(written(document), quiet);
    const check = () => (name.startsWith("phased") ? decider.check(spec.options.length) : decider.check(spec, 1000));
    check();
    wrong(decider);
    assert.throws(check, PrivateerError);
  });
}

test("coins follow the shares of the policy", async () => {
  // 4,000 draws of an arm with a share of about 1/3: 5 standard errors are .037, missed once in a million.
  const policy = await OfflinePolicy.read(written(PLAIN), quiet);
  const row = PLAIN.policy.shows.bins.find((/** @type {any} */ bin) => Object.keys(bin.arms).length === 3);
  const context = Object.fromEntries(policy.features.map((name, j) => [name, (row.lower[j] + row.upper[j]) / 2]));
  const chosen = Array.from({ length: 4000 }, () => policy.choose(context));
  for (const [arm, share] of Object.entries(row.arms)) {
    assert.ok(Math.abs(chosen.filter((one) => one === arm).length / 4000 - Number(share)) < 0.04, arm);
  }
});

test("what a context lacks is said, and what does not fit is told once", async () => {
  /** @type {string[]} */
  const warnings = [];
  const policy = await OfflinePolicy.read(written(PLAIN), { warn: (message) => warnings.push(message) });
  assert.throws(() => policy.choose({ x1: 0.5 }), /x2: missing/);
  assert.throws(() => policy.choose({ x1: 0.5, x2: 0.5, x3: 1 }), /x3: the experiment has no such feature, but x1, x2$/);
  for (const coins of [-1, 2 ** 32, 0.5]) assert.throws(() => policy.choose({ x1: 0.5, x2: 0.5 }, coins), /coins: must be a whole number/);
  assert.deepEqual(warnings, []);
  for (let again = 0; again < 3; again++) policy.choose({ x1: "high", x2: 0.5 });
  assert.equal(warnings.length, 1);
  assert.match(warnings[0], /^x1: should be a number/);
});
