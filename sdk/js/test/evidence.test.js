// @ts-check
/** A server that has contradicted itself: the device that knows goes on with nothing there. */

import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Client, FileLedger } from "../src/node.js";
import { changed, clockAt, rejects, serving } from "./support/served.js";
import { vectors } from "./support/vectors.js";

const told = vectors("publications");
const LOCAL = Buffer.from(told[0].publication, "hex");
const CONTEXT = { x1: 0.3, x2: 0.9 };

/** @param {number} count @param {number} mark */
const leaves = (count, mark) => Array.from({ length: count }, (_, i) => Buffer.alloc(32, mark + i));

for (const [how, shown, type] of /** @type {[string, number, string][]} */ ([["forks", 9, "log-forked"], ["goes back", 1, "log-rollback"]])) {
  test(`a device whose server's log ${how} stops, also where it had joined before, and after a restart`, () =>
    serving(LOCAL, async (at) => {
      at.notary.leaves = leaves(4, 1);
      const path = join(mkdtempSync(join(tmpdir(), "evidence-")), "ledger.json");
      const clock = clockAt(1_000_000);
      const client = (more = {}) => new Client(at.url, { ledger: new FileLedger(path), clock, retryTimeout: 0, ...more });
      const open = client();
      const session = await open.join("test");
      session.choose(CONTEXT);
      await session.save();
      assert.equal(await open.evidence(), null);
      at.notary.leaves = leaves(shown, 100);
      at.publication = changed(LOCAL, {}, 5);
      await rejects(client().join("test"), type);
      const asked = at.requests.length;
      const evidence = JSON.parse((await client().evidence()) ?? "");
      assert.deepEqual([evidence.problem, evidence.server], [type, at.url]);
      assert.notEqual(evidence.known.head, JSON.parse(evidence.proof).head);
      const refused = (/** @type {any} */ error) => error.type === type && error.field === "evidence" && error.message.includes(`ledger.forgetServer("${at.url}")`);
      const acts = [() => session.report(1), () => client().resume("test"), () => client().flush(), () => client({ issuer: at.url }).fetchTokens("test")];
      for (const act of acts) await assert.rejects(act(), refused);
      assert.equal(at.requests.length, asked);
      await assert.rejects(client().join("test"), refused); // after a rollback it asks whether the log goes on
      assert.throws(() => session.choose(CONTEXT), refused); // since this page has asked
      assert.throws(() => session.choose(CONTEXT, { fresh: true }), refused);
      assert.deepEqual(at.bodies, []);
      if (type === "log-forked") assert.equal(at.requests.length, asked);
      await session.forget(); // what is the person's own they may erase
      // The application decides to trust the server anew.
      assert.deepEqual(JSON.parse((await client().ledger.forgetServer(at.url)) ?? ""), evidence);
      const again = await client().join("test");
      again.choose(CONTEXT);
      assert.equal(await again.report(1), "accepted");
    }));
}

test("a session that meets the fork itself sends nothing, and chooses no more", () =>
  serving(LOCAL, async (at) => {
    at.notary.leaves = leaves(4, 1);
    const path = join(mkdtempSync(join(tmpdir(), "evidence-")), "ledger.json");
    const clock = clockAt(1_000_000);
    const session = await new Client(at.url, { ledger: new FileLedger(path), clock, retryTimeout: 0 }).join("test");
    session.choose(CONTEXT);
    at.notary.leaves = leaves(9, 100);
    at.publication = changed(LOCAL, {}, 5);
    clock.at.time += 60;
    await rejects(session.report(1), "log-forked");
    assert.throws(() => session.choose(CONTEXT), { type: "log-forked" });
    assert.deepEqual(at.bodies, []);
  }));

test("what is due and what waits is not sent to a server that has forked", () =>
  serving(changed(LOCAL, { conversion_window_seconds: 3600 }), async (at) => {
    at.notary.leaves = leaves(4, 1);
    const path = join(mkdtempSync(join(tmpdir(), "evidence-")), "ledger.json");
    const clock = clockAt(1_000_000);
    const client = () => new Client(at.url, { ledger: new FileLedger(path), clock, retryTimeout: 0 });
    const session = await client().join("test");
    session.choose(CONTEXT);
    await session.save();
    at.notary.leaves = leaves(9, 100);
    at.publication = changed(LOCAL, { conversion_window_seconds: 3600 }, 5);
    clock.at.time += 4000;
    for (const act of [() => client().flush(), () => client().join("test")]) await rejects(act(), "log-forked");
    assert.deepEqual(at.bodies, []);
  }));

test("an old head that somebody in between repeats stops a device until the log goes on", () =>
  serving(LOCAL, async (at) => {
    const path = join(mkdtempSync(join(tmpdir(), "evidence-")), "ledger.json");
    const client = () => new Client(at.url, { ledger: new FileLedger(path), clock: clockAt(1_000_000), retryTimeout: 0 });
    at.notary.leaves = leaves(4, 1);
    const session = await client().join("test");
    session.choose(CONTEXT);
    const good = at.notary.leaves;
    at.notary.leaves = good.slice(0, 2);
    at.publication = changed(LOCAL, {}, 5);
    await rejects(client().join("test"), "log-rollback");
    await rejects(client().join("test"), "log-rollback");
    at.notary.leaves = good;
    assert.ok((await client().join("test")).choose(CONTEXT));
    assert.equal(JSON.parse((await client().evidence()) ?? "").answered, true); // and it may still be published
    // A fork outweighs a rollback, and stays.
    at.notary.leaves = good.slice(0, 2);
    await rejects(client().join("test"), "log-rollback");
    at.notary.leaves = leaves(12, 100);
    await rejects(client().join("test"), "log-forked");
    at.notary.leaves = good;
    await rejects(client().join("test"), "log-forked");
  }));

test("what somebody in between can do does not stop a device, nor cover up a contradiction", () =>
  serving(LOCAL, async (at) => {
    const path = join(mkdtempSync(join(tmpdir(), "evidence-")), "ledger.json");
    const client = () => new Client(at.url, { ledger: new FileLedger(path) });
    at.notary.leaves = leaves(4, 1);
    at.proof = (proof) => ({ ...proof, inclusion: "" });
    await rejects(client().join("test"), "proof-invalid");
    assert.equal(JSON.parse((await client().evidence()) ?? "").problem, "proof-invalid");
    at.proof = (proof) => proof;
    assert.ok((await client().join("test")).choose(CONTEXT));
    await client().ledger.storeEvidence(at.url, JSON.stringify({ problem: "log-forked" }));
    await client().ledger.storeEvidence(at.url, JSON.stringify({ problem: "proof-invalid" }));
    await rejects(client().join("test"), "log-forked");
  }));
