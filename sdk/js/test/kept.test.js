// @ts-check
/** Choices that wait on a device: kept by default, encrypted, and gone when nothing is reported of them any more. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, unlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { lock, newKey } from "../src/ledgers/vault.js";
import { Client, FileLedger, MemoryLedger } from "../src/node.js";
import { changed, clockAt, rejects, serving } from "./support/served.js";
import { vectors } from "./support/vectors.js";

const told = vectors("publications");
const LOCAL = Buffer.from(told[0].publication, "hex");
const MARKED = { x1: 0.377190542, x2: 0.918273645 };
const OTHER = { x1: 0.9, x2: 0.1 };
const REWARD = 0.727364819;
const HOUR = 3600;
const DAY = 24 * HOUR;
const somewhere = () => join(mkdtempSync(join(tmpdir(), "kept-")), "ledger.json");
/** @param {string} path */
const files = (path) => readdirSync(join(path, "..")).map((name) => readFileSync(join(path, "..", name), "latin1"));

test("how many people are expected in a day means nothing to a device", () =>
  serving(changed(LOCAL, { conversion_window_seconds: HOUR, arrivals_per_day: 120.5 }), async (at) => {
    const client = () => new Client(at.url, { ledger: new FileLedger(path) });
    const path = somewhere();
    const first = await client().join("test");
    const arm = first.choose(MARKED);
    await first.save();
    at.publication = changed(LOCAL, { conversion_window_seconds: HOUR, arrivals_per_day: null }, 5);
    assert.equal((await client().join("test")).choose(OTHER), arm);
  }));

test("a choice stands in every session and every round, whatever the context, until its report", () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const client = () => new Client(at.url, { ledger: new FileLedger(path) });
    const first = await client().join("test");
    const arm = first.choose(MARKED);
    await first.save();
    for (let version = 5; version < 15; version++) {
      at.publication = changed(LOCAL, {}, version);
      assert.equal((await client().join("test")).choose(OTHER), arm);
    }
    assert.equal(await (await client().resume("test")).report(1), "accepted");
    assert.equal((await client().ledger.entry(`${at.url}/test`)).choice, null);
    const after = await client().join("test");
    assert.deepEqual(new Set([MARKED, OTHER].map((context) => after.choose(context))), new Set([arm]), "the arm does not stay");
    const arms = new Set(Array.from({ length: 40 }, () => after.choose(MARKED, { sticky: false })));
    await after.keeping;
    assert.deepEqual([after.reportRequested, arms.size > 1, await client().ledger.choice(`${at.url}/test`)], [false, true, null]);
  }));

test("sessions that join at once, of one device, show one arm", () =>
  serving(LOCAL, async (at) => {
    const arms = new Set();
    for (let person = 0; person < 40; person++) {
      at.asks = person % 2 ? "nobody" : "published"; // asked or not
      const ledger = new MemoryLedger();
      const pages = await Promise.all([1, 2, 3].map(() => new Client(at.url, { ledger }).join("test")));
      const seen = new Set(pages.map((page) => page.choose(MARKED)));
      assert.equal(seen.size, 1, `person ${person} sees several`);
      await pages[0].save();
      await pages[0].keeping;
      assert.equal((await new Client(at.url, { ledger }).join("test")).choose(OTHER), [...seen][0]);
      arms.add([...seen][0]);
    }
    assert.ok(arms.size > 1, "everybody has the same arm");
  }));

test("no coins are used for two choices, and those of a choice leave the device with its report", () =>
  serving(LOCAL, async (at) => {
    const [ledger, coins] = [new MemoryLedger(), new Set()];
    const identity = `${at.url}/test`;
    for (let time = 0; time < 5; time++) {
      const session = await new Client(at.url, { ledger }).join("test");
      const next = (await ledger.changeArm(identity, (arm) => /** @type {any} */ (arm))).coins;
      assert.ok(next !== null && !coins.has(next));
      coins.add(next);
      session.choose(MARKED, { fresh: time > 0 });
      await session.keeping;
      const slot = (await ledger.choice(identity))?.slot;
      assert.equal(slot === next, time === 0, "a fresh choice has coins of its own");
      assert.ok(time === 0 || !coins.has(slot));
      coins.add(slot);
      assert.equal((await ledger.changeArm(identity, (arm) => /** @type {any} */ (arm))).coins, null);
    }
  }));

test("an arm that is retired, and an experiment that is over, end an arm that stays", () =>
  serving(LOCAL, async (at) => {
    const ledger = new MemoryLedger();
    const session = await new Client(at.url, { ledger }).join("test");
    const arm = session.choose(MARKED);
    assert.equal(await session.report(1), "accepted");
    const again = async () => {
      const found = await new Client(at.url, { ledger }).join("test");
      assert.equal(found.reportRequested, false);
      return found;
    };
    const now = Date.now() / 1000;
    const { participation, arm: kept } = await again();
    const other = participation.spec.arms.find((name) => name !== arm);
    participation.spec.retired = [`${other}`];
    assert.equal(participation.shows(kept, now), true);
    participation.spec.retired = [arm];
    assert.equal(participation.shows(kept, now), false);
    participation.spec.retired = [];
    participation.drains = true;
    assert.equal(participation.shows(kept, now), false);
    participation.drains = false;
    await ledger.forget(`${at.url}/test`);
    assert.equal((await again()).arm.arm, null);
  }));

test("a fresh choice takes the place of the one that is kept", () =>
  serving(LOCAL, async (at) => {
    const ledger = new MemoryLedger();
    const session = await new Client(at.url, { ledger }).join("test");
    const arms = Array.from({ length: 40 }, () => session.choose(MARKED, { fresh: true }));
    assert.ok(new Set(arms).size > 1);
    await session.save();
    assert.equal((await new Client(at.url, { ledger }).join("test")).choose(OTHER), arms[39]);
  }));

test("when an arm is retired everybody chooses anew, whichever arm they have", () =>
  serving(LOCAL, async (at) => {
    for (const conversion_window_seconds of [0, HOUR]) {
      at.publication = changed(LOCAL, { conversion_window_seconds }, 4);
      const [ledger, clock] = [new MemoryLedger(), clockAt(1_000_000)];
      const session = await new Client(at.url, { ledger, clock }).join("test");
      session.choose(MARKED);
      await session.save();
      const before = await ledger.choice(`${at.url}/test`);
      for (const isRetired of [false, true]) {
        const again = await new Client(at.url, { ledger, clock }).join("test");
        again.participation.spec.retired = isRetired ? [again.arms[2]] : [];
        again.choose(OTHER);
        await again.save();
        assert.equal((await ledger.choice(`${at.url}/test`))?.slot !== before?.slot, isRetired);
      }
    }
  }));

test("a choice of which no report would count, or another experiment's of this name, does not stand", () =>
  serving(LOCAL, async (at) => {
    const changes = [{ publication: changed(LOCAL, {}, 70) }, { arms: ["a", "b", "other"] }, { reward: { low: 0, high: 2 } }];
    for (const [number, change] of changes.entries()) {
      at.publication = changed(LOCAL, {}, 4);
      const ledger = new MemoryLedger();
      const session = await new Client(at.url, { ledger }).join("test");
      session.choose(MARKED);
      await session.save();
      const before = await ledger.choice(`${at.url}/test`);
      if (change.publication) at.publication = change.publication;
      const again = await new Client(at.url, { ledger }).join("test");
      const { spec } = again.participation;
      if (change.arms) spec.arms = change.arms;
      if (change.reward) spec.reward = change.reward;
      again.choose(OTHER);
      await again.save();
      assert.equal((await ledger.choice(`${at.url}/test`))?.slot === before?.slot, number === 0);
    }
  }));

test("each period has a choice of its own, and an experiment that is deleted leaves none", () =>
  serving(changed(LOCAL, { conversion_window_seconds: 0 }), async (at) => {
    const [ledger, clock] = [new MemoryLedger(), clockAt(1_000_000)];
    const session = await new Client(at.url, { ledger, clock }).join("test");
    session.choose(MARKED);
    await session.save();
    await ledger.keep(`${at.url}/test`, (kept) => kept && { ...kept, period: 7 });
    const next = await new Client(at.url, { ledger, clock }).join("test");
    next.choose(MARKED);
    await next.save();
    assert.equal((await ledger.choice(`${at.url}/test`))?.period, 0);
    at.gone = true;
    await rejects(new Client(at.url, { ledger, clock }).join("test"), "deleted");
    assert.equal(await ledger.choice(`${at.url}/test`), null);
  }));

test("files have nothing of the person in the clear, and one size for everybody", () =>
  serving(changed(LOCAL, { conversion_window_seconds: HOUR }), async (at) => {
    const sizes = new Set();
    for (const [context, reward] of /** @type {[any, number | null][]} */ ([[MARKED, REWARD], [OTHER, null], [{ x1: 0, x2: 1 }, 1], [{ x1: 1 / 3, x2: 2 / 3 }, 0]])) {
      const path = somewhere();
      const session = await new Client(at.url, { ledger: new FileLedger(path), clock: clockAt(1_000_000) }).join("test");
      session.choose(context);
      if (reward !== null) await session.report(reward);
      await session.save();
      const found = files(path);
      for (const mark of ["377190", "918273", "727364", '"slot"', '"arm"', '"columns"']) assert.ok(!found.some((text) => text.includes(mark)), mark);
      const { choice } = await new FileLedger(path).entry(`${at.url}/test`);
      sizes.add(/** @type {Uint8Array} */ (choice).length);
      assert.equal((await new FileLedger(path).choice(`${at.url}/test`))?.columns.length, 2); // it is there, for whoever has the key
    }
    assert.equal(sizes.size, 1);
  }));

test("without its key a ledger tells nothing; one choice that cannot be read keeps nothing else from being sent", () =>
  serving(changed(LOCAL, { conversion_window_seconds: HOUR }), async (at) => {
    const [path, clock] = [somewhere(), clockAt(1_000_000)];
    const client = () => new Client(at.url, { ledger: new FileLedger(path), clock });
    const session = await client().join("test");
    session.choose(MARKED);
    await session.save();
    unlinkSync(`${path}.key`);
    for (const act of [() => client().join("test"), () => client().resume("test")]) {
      await assert.rejects(act(), (/** @type {any} */ error) => error.type === "input-invalid" && error.field === "key" && /ledger\.forget/.test(error.message));
    }
    assert.deepEqual(await client().flush(), { test: "pending" });
    await client().ledger.forget(`${at.url}/test`);
    assert.ok((await client().join("test")).choose(OTHER));
  }));

test("a key of the application's encrypts in the place of the file", () =>
  serving(LOCAL, async (at) => {
    const [path, key] = [somewhere(), crypto.getRandomValues(new Uint8Array(32))];
    const session = await new Client(at.url, { ledger: new FileLedger(path, { key }) }).join("test");
    const arm = session.choose(MARKED);
    await session.save();
    assert.deepEqual(readdirSync(join(path, "..")).filter((name) => name.endsWith(".key")), []);
    assert.equal((await new Client(at.url, { ledger: new FileLedger(path, { key }) }).resume("test")).choose(OTHER), arm);
    const wrong = new FileLedger(path, { key: new Uint8Array(32) });
    await rejects(new Client(at.url, { ledger: wrong }).resume("test"), "input-invalid");
    assert.throws(() => new FileLedger(path, { key: new Uint8Array(16) }), { field: "key" });
  }));

test("an outcome is told of the choice it is about, and not of the fresh one of another page", () =>
  serving(LOCAL, async (at) => {
    const [ledger, clock] = [new MemoryLedger(), clockAt(1_000_000)];
    const client = new Client(at.url, { ledger, clock, retryTimeout: 0 });
    const [one, other] = [await client.join("test"), await client.join("test")];
    one.choose(MARKED);
    await one.save();
    other.choose(OTHER, { fresh: true });
    await other.save();
    clock.at.time += 60;
    assert.equal(await one.report(3), "not-requested");
    const kept = await ledger.choice(`${at.url}/test`);
    assert.deepEqual([kept?.slot, kept?.due, at.bodies.length], [other.choice?.slot, null, 0]);
    assert.equal(await other.report(3), "accepted");
  }));

test("the size of a kept choice says nothing of the number that adjusts the reward", async () => {
  const key = await newKey();
  const choice = { columns: [0.5], values: [1], slot: 7, arm: 1, version: 3, due: 12, period: 0, window: 0 };
  const sizes = await Promise.all([0, -0, 1.25, -31.4159265358979, 1e-7, 120].map(async (offset) => (await lock(key, /** @type {any} */ ({ ...choice, offset }), "e")).length));
  assert.equal(new Set(sizes).size, 1);
});
