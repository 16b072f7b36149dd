// @ts-check
/** The providers in the real packages of OpenFeature, of the web and of servers. */

import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { OpenFeature as Servers } from "@openfeature/server-sdk";
import { OpenFeature as Web } from "@openfeature/web-sdk";

import * as providers from "../src/openfeature.js";
import { Client, FileLedger, MemoryLedger } from "../src/node.js";
import { changed, clockAt, serving } from "../test/support/served.js";
import { vectors } from "../test/support/vectors.js";

/** Providers that wait for longer than a page does, since a machine may be busy. */
class PrivateerWebProvider extends providers.PrivateerWebProvider {
  /** @param {Client} client @param {any} settings */
  constructor(client, settings) {
    super(client, { within: 10, ...settings });
  }
}
class PrivateerServerProvider extends providers.PrivateerServerProvider {
  /** @param {(key: string) => Client} clientOf @param {any} [settings] */
  constructor(clientOf, settings) {
    super(clientOf, { within: 10, ...settings });
  }
}

const LOCAL = Buffer.from(vectors("publications")[0].publication, "hex");
/** @type {any[]} */
const FAMILIES = vectors("decisions");
const TRIAL = FAMILIES.find(({ name }) => name === "trial under local, questions");
const CONTEXT = { x1: 0.3, x2: 0.9, unrelated: "yes" };
const VALUES = { test: { a: 1, b: 2, c: 3 } };

/** What becomes of reports, as a provider tells it. */
function listening() {
  /** @type {any[]} */
  const found = [];
  return { found, reported: (/** @type {string} */ name, /** @type {any} */ what) => void found.push([name, what.type ?? what]) };
}

test("web: evaluations are immediate and stand, and a tracked event is the report", () =>
  serving(LOCAL, async (at) => {
    const { found, reported } = listening();
    const client = new Client(at.url, { ledger: new MemoryLedger() });
    const provider = new PrivateerWebProvider(client, { experiments: ["test"], outcomes: { bought: "test" }, reported });
    await Web.setContext(CONTEXT);
    await Web.setProviderAndWait(provider);
    const features = Web.getClient();
    const first = features.getStringDetails("test", "none");
    assert.ok(["a", "b", "c"].includes(first.value), JSON.stringify(first));
    assert.deepEqual([first.reason, first.variant, first.flagMetadata.asked], ["SPLIT", first.value, true]);
    for (let again = 0; again < 20; again++) assert.equal(features.getStringValue("test", "none"), first.value);
    features.track("something else", { value: 3 });
    features.track("bought", { value: 1 });
    await provider.onClose();
    assert.deepEqual([found, at.bodies.length], [[["test", "accepted"]], 1]);
    features.track("bought", { value: 1 });
    await provider.onClose();
    assert.deepEqual([found[1], at.bodies.length], [["test", "already-reported"], 1]);
    await Web.close();
  }));

/**
 * The arms of ten loads of a page: each time a new client and a new provider on what the browser keeps. The context is another one each
 * time, and a round passes.
 * @param {Uint8Array} publication @param {Record<string, any>} limits @returns {Promise<string[]>}
 */
const tenLoads = async (publication, limits) => {
  /** @type {string[]} */
  const arms = [];
  await serving(publication, async (at) => {
    const { found, reported } = listening();
    const ledger = () => new FileLedger(path);
    const path = join(mkdtempSync(join(tmpdir(), "page-")), "ledger.json");
    const load = async (/** @type {number} */ number) => {
      const client = new Client(at.url, { ledger: ledger(), limits, warn: () => {} });
      await Web.setProviderAndWait(new PrivateerWebProvider(client, { experiments: ["test"], reported }));
      const session = await client.join("test");
      await Web.setContext(Object.fromEntries(session.features.map((name) => [name, number % 2])));
      const shown = Web.getClient().getStringDetails("test", "none");
      return shown.errorCode ? `${shown.errorCode}: ${shown.errorMessage}` : `${shown.variant}`;
    };
    for (let number = 0; number < 10; number++) {
      at.publication = changed(publication, {}, 10 + number);
      arms.push(await load(number));
      if (number < 9) await Web.close();
    }
    assert.equal(arms.length, 10);
    assert.equal(new Set(arms).size, 1, `arms of ten loads: ${arms}`);
    Web.getClient().track("test", { value: 1 });
    await Web.close();
    assert.deepEqual([found, at.bodies.length], [[["test", "accepted"]], 1]);
    // After the report the browser has nothing of the choice.
    assert.equal((await ledger().entry(`${at.url}/test`)).choice, null);
  });
  return arms;
};

test("web: ten loads of a page, ten contexts, ten rounds: one arm", async (t) => t.diagnostic(`arms: ${await tenLoads(LOCAL, {})}`));

test("web: ten loads of a page in a trial: one arm", async (t) =>
  t.diagnostic(`arms: ${await tenLoads(Buffer.from(TRIAL.publication, "base64"), { ...TRIAL.limits, epsilon: Infinity })}`));

test("web: where the application says so a new context is a fresh choice; one that lacks a feature gives the default, in words", () =>
  serving(LOCAL, async (at) => {
    const client = new Client(at.url, { ledger: new MemoryLedger() });
    await Web.setProviderAndWait(new PrivateerWebProvider(client, { experiments: ["test", "nobody"], values: VALUES, fresh: ["test"] }));
    const features = Web.getClient();
    const arms = new Set();
    for (let i = 0; i < 40; i++) {
      await Web.setContext({ ...CONTEXT, x1: i / 40 });
      arms.add(features.getNumberValue("test", 0));
    }
    assert.ok(arms.size > 1 && !arms.has(0));
    await Web.setContext({ x1: 0.3 });
    const lacking = features.getNumberDetails("test", 0);
    assert.deepEqual([lacking.value, lacking.errorCode], [0, "INVALID_CONTEXT"]);
    assert.match(String(lacking.errorMessage), /x2: missing/);
    await Web.setContext(CONTEXT);
    assert.equal(features.getStringDetails("test", "x").errorCode, "TYPE_MISMATCH");
    assert.equal(features.getBooleanDetails("unlisted", false).errorCode, "FLAG_NOT_FOUND");
    assert.equal(features.getBooleanDetails("nobody", true).value, true);
    await Web.close();
  }));

test("web: where the server is away the page goes on with its defaults", async () => {
  const client = new Client("http://127.0.0.1:59999", { ledger: new MemoryLedger(), timeout: 1 });
  await Web.setProviderAndWait(new PrivateerWebProvider(client, { experiments: ["test"] }));
  const found = Web.getClient().getStringDetails("test", "none");
  assert.deepEqual([found.value, found.errorCode], ["none", "GENERAL"]);
  assert.match(String(found.errorMessage), /nothing listens at http:..127.0.0.1:59999/);
  Web.getClient().track("test");
  await Web.close();
});

test("web: late outcomes wait on the device", () =>
  serving(changed(LOCAL, { conversion_window_seconds: 3600 }), async (at) => {
    const [clock, { found, reported }] = [clockAt(1_000_000), listening()];
    const client = new Client(at.url, { ledger: new MemoryLedger(), clock });
    const provider = new PrivateerWebProvider(client, { experiments: ["test"], reported });
    await Web.setProviderAndWait(provider);
    await Web.setContext(CONTEXT);
    Web.getClient().getStringValue("test", "none");
    Web.getClient().track("test", { value: 1 });
    await provider.onClose();
    assert.deepEqual([found, at.bodies], [[["test", "pending"]], []]);
    clock.at.time += 4000;
    assert.deepEqual(await client.flush(), { test: "accepted" });
    await Web.close();
  }));

test("servers: ten starts of a process: each person has one arm", () =>
  serving(LOCAL, async (at) => {
    const folder = mkdtempSync(join(tmpdir(), "people-"));
    const clientOf = (/** @type {string} */ key) => new Client(at.url, { ledger: new FileLedger(join(folder, key)) });
    /** @type {Set<string>[]} */
    const arms = Array.from({ length: 8 }, () => new Set());
    for (let start = 0; start < 10; start++) {
      await Servers.setProviderAndWait(new PrivateerServerProvider(clientOf));
      for (const [person, seen] of arms.entries()) {
        seen.add(await Servers.getClient().getStringValue("test", "none", { ...CONTEXT, x1: start / 10, targetingKey: `person-${person}` }));
      }
      await Servers.close();
    }
    assert.deepEqual(arms.map(({ size }) => size), arms.map(() => 1));
    assert.ok(new Set(arms.map((seen) => [...seen][0])).size > 1, "all of them have the same arm"); // by chance 3^-7
  }));

test("servers: each person has a ledger of their own, and reports once", () =>
  serving(LOCAL, async (at) => {
    const { found, reported } = listening();
    /** @type {Map<string, MemoryLedger>} */
    const ledgers = new Map();
    const clientOf = (/** @type {string} */ key) => {
      const ledger = ledgers.get(key) ?? new MemoryLedger();
      ledgers.set(key, ledger);
      return new Client(at.url, { ledger });
    };
    const provider = new PrivateerServerProvider(clientOf, { reported });
    await Servers.setProviderAndWait(provider);
    const features = Servers.getClient();
    for (const targetingKey of ["ann", "bob"]) {
      const person = { ...CONTEXT, targetingKey };
      const arm = await features.getStringValue("test", "none", person);
      assert.equal(await features.getStringValue("test", "none", person), arm);
      features.track("test", person, { value: 0 });
    }
    await provider.onClose();
    assert.deepEqual([found, at.bodies.length, ledgers.size], [[["test", "accepted"], ["test", "accepted"]], 2, 2]);
    for (const body of at.bodies) assert.doesNotMatch(Buffer.from(body, "hex").toString("latin1"), /ann|bob/);
    provider.forget("ann");
    await features.getStringValue("test", "none", { ...CONTEXT, targetingKey: "ann" });
    features.track("test", { targetingKey: "ann" }, { value: 1 });
    await provider.onClose();
    assert.deepEqual([found[2], at.bodies.length], [["test", "already-reported"], 2]);
    const nobody = await features.getStringDetails("test", "none", CONTEXT);
    assert.deepEqual([nobody.value, nobody.errorCode], ["none", "TARGETING_KEY_MISSING"]);
    const unknown = await features.getBooleanDetails("test", false, { ...CONTEXT, targetingKey: "ann" });
    assert.equal(unknown.errorCode, "TYPE_MISMATCH");
    await Servers.close();
  }));

test("web: a client refuses a second person", () =>
  serving(LOCAL, async (at) => {
    const { found, reported } = listening();
    const provider = new PrivateerWebProvider(new Client(at.url, { ledger: new MemoryLedger() }), { experiments: ["test"], reported });
    await Web.setContext({ ...CONTEXT, targetingKey: "7" });
    await Web.setProviderAndWait(provider);
    const features = Web.getClient();
    const first = features.getStringDetails("test", "none");
    assert.ok(["a", "b", "c"].includes(first.value));
    await Web.setContext({ ...CONTEXT, targetingKey: /** @type {any} */ (7) });
    assert.equal(features.getStringValue("test", "none"), first.value);
    await Web.setContext({ ...CONTEXT, targetingKey: "8" });
    const other = features.getStringDetails("test", "none");
    assert.deepEqual([other.value, other.errorCode], ["none", "INVALID_CONTEXT"]);
    assert.match(`${other.errorMessage}`, /a client is one person.*PrivateerServerProvider/);
    features.track("test", { value: 1 });
    await provider.onClose();
    assert.deepEqual([found, at.bodies], [[], []]);
    await Web.close();
    await Web.setContext(CONTEXT);
  }));

test("servers: a targeting key that is a number is the person of its text", () =>
  serving(LOCAL, async (at) => {
    const { found, reported } = listening();
    /** @type {string[]} */
    const asked = [];
    const clientOf = (/** @type {string} */ key) => {
      asked.push(key);
      return new Client(at.url, { ledger: new MemoryLedger() });
    };
    const provider = new PrivateerServerProvider(clientOf, { reported });
    for (const targetingKey of [7, "7", 0, "0"]) {
      assert.ok((await provider.resolveStringEvaluation("test", "none", { ...CONTEXT, targetingKey })).variant);
      provider.track("test", { ...CONTEXT, targetingKey });
      await provider.onClose();
    }
    assert.deepEqual(asked, ["7", "0"]);
    assert.deepEqual(found.map(([, what]) => what), ["accepted", "already-reported", "accepted", "already-reported"]);
  }));

test("a provider is set in time, and the arm is there when the server has answered", () =>
  serving(LOCAL, async (at) => {
    const bare = at.notary.proof.bind(at.notary);
    at.notary.proof = async (publication) => {
      await new Promise((resolve) => setTimeout(resolve, 1500));
      return bare(publication);
    };
    const client = new Client(at.url, { ledger: new MemoryLedger() });
    const provider = new PrivateerWebProvider(client, { experiments: ["test"], within: 0.5 });
    const began = performance.now();
    await Web.setContext(CONTEXT);
    await Web.setProviderAndWait(provider);
    assert.ok(performance.now() - began < 1400);
    const late = Web.getClient().getStringDetails("test", "none");
    assert.deepEqual([late.value, late.errorMessage], ["none", `${at.url} did not answer within 0.5 s`]);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    assert.ok(["a", "b", "c"].includes(Web.getClient().getStringValue("test", "none")));
    await Web.close();
  }));
