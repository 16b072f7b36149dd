// @ts-check
/** No two choices have the same coins, in all pages of a ledger. That some are the same by chance has a probability of 2^-32. */

import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { Client, FileLedger, MemoryLedger } from "../src/node.js";
import { serving } from "./support/served.js";
import { vectors } from "./support/vectors.js";

const LOCAL = Buffer.from(vectors("publications")[0].publication, "hex");
const MARKED = { x1: 0.377190542, x2: 0.918273645 };
const OTHER = { x1: 0.9, x2: 0.1 };
const somewhere = () => join(mkdtempSync(join(tmpdir(), "coins-")), "ledger.json");
/** Two pages in one process have one ledger object, or one each. @type {Record<string, () => (() => import("../src/ledgers/ledger.js").Ledger)>} */
const LEDGERS = {
  "one ledger": () => {
    const ledger = new MemoryLedger();
    return () => ledger;
  },
  "two that share a place": () => {
    const path = somewhere();
    return () => new FileLedger(path);
  },
};

/** Wait until a page has heard of so many choices. @param {import("../src/session.js").Session} page @param {number} count */
async function heard(page, count) {
  for (let tries = 0; tries < 200 && page.client.ledger.uses.first.size < count; tries++) await pause(5);
  assert.equal(page.client.ledger.uses.first.size, count);
}

for (const [kind, make] of Object.entries(LEDGERS)) {
  for (const asks of ["published", "nobody"]) {
    test(`pages that joined at once have one choice by the coins they were offered: ${kind}, ${asks}`, () =>
      serving(LOCAL, async (at) => {
        at.asks = asks;
        const ledger = make();
        const joined = () => new Client(at.url, { ledger: ledger() }).join("test");
        const [one, same, other] = await Promise.all([joined(), joined(), joined()]);
        const arm = one.choose(MARKED);
        await heard(same, 1);
        await heard(other, 1);
        other.choose(OTHER);
        assert.deepEqual([same.choose(MARKED), same.choice?.slot], [arm, one.choice?.slot]);
        assert.notEqual(other.choice?.slot, one.choice?.slot);
        await Promise.all([one, same, other].map((page) => page.save()));
      }));
  }
}

test("pages that choose before they hear of each other show one person one arm in one context", () =>
  serving(LOCAL, async (at) => {
    const arms = new Set();
    for (let person = 0; person < 12; person++) {
      const path = somewhere();
      const joined = () => new Client(at.url, { ledger: new FileLedger(path) }).join("test");
      const seen = new Set((await Promise.all([joined(), joined(), joined()])).map((page) => page.choose(MARKED)));
      assert.equal(seen.size, 1);
      arms.add([...seen][0]);
    }
    assert.ok(arms.size > 1, "people differ");
  }));

test("a page that chooses at any step of another one's joining has the same arm", () =>
  serving(LOCAL, async (at) => {
    /** Join as a person's second page, and do something before one step of it. @param {number} when @param {(first: import("../src/session.js").Session) => Promise<void>} what */
    async function interrupted(when, what) {
      const ledger = new MemoryLedger();
      const joined = () => new Client(at.url, { ledger }).join("test");
      const first = await joined();
      let step = 0;
      for (const name of /** @type {const} */ (["read", "change"])) {
        const asked = /** @type {any} */ (ledger.store[name].bind(ledger.store));
        ledger.store[name] = /** @type {any} */ (async (/** @type {any[]} */ ...parts) => {
          if (step++ === when) await what(first);
          return asked(...parts);
        });
      }
      const second = await joined();
      return { arms: [first.choose(MARKED), second.choose(MARKED)], steps: step };
    }
    const { steps } = await interrupted(-1, async () => {});
    assert.ok(steps > 8, `${steps}`);
    const people = [];
    for (let person = 0; person < 8 * steps; person++) people.push(await interrupted(person % steps, async (first) => (first.choose(MARKED), first.save())));
    assert.deepEqual(people.filter(({ arms: [one, other] }) => one !== other), []);
    assert.ok(new Set(people.map(({ arms }) => arms[0])).size > 1, "people differ");
  }));

test("a page that joins while a choice is being written hears of it then", () =>
  serving(LOCAL, async (at) => {
    at.asks = "nobody"; // where somebody is asked, the choice itself is in the ledger first
    const path = somewhere();
    const joined = () => new Client(at.url, { ledger: new FileLedger(path) }).join("test");
    const one = await joined();
    const { ledger } = one.client;
    const { changeArm } = ledger;
    /** @type {import("../src/session.js").Session | null} */
    let late = null;
    ledger.changeArm = async (...parts) => {
      late = await joined();
      return changeArm.apply(ledger, parts);
    };
    one.choose(MARKED);
    await one.save();
    const page = /** @type {import("../src/session.js").Session} */ (/** @type {unknown} */ (late));
    assert.equal(page.arm.coins, one.choice?.slot);
    await heard(page, 1);
    page.choose(OTHER);
    assert.notEqual(page.choice?.slot, one.choice?.slot);
  }));

test("what pages tell each other has nothing of the person in the clear, and one size for everybody", () =>
  serving(LOCAL, async (at) => {
    const sizes = new Set();
    for (const context of [MARKED, OTHER, { x1: 0, x2: 1 }, { x1: 1 / 3, x2: 2 / 3 }]) {
      const path = somewhere();
      const script = new BroadcastChannel(`privateer ${path}`);
      const message = new Promise((resolve) => (script.onmessage = ({ data }) => resolve(data)));
      const silence = pause(5000, {}, { ref: false });
      const page = await new Client(at.url, { ledger: new FileLedger(path) }).join("test");
      page.choose(context);
      const { experiment, body, ...more } = /** @type {any} */ (await Promise.race([message, silence]));
      script.close();
      assert.deepEqual([experiment, more], [`${at.url}/test`, {}]);
      const text = Buffer.from(body).toString("latin1");
      for (const mark of ["377190", "918273", '"slot"', '"arm"', '"columns"', `${page.choice?.slot}`]) assert.ok(!text.includes(mark), mark);
      sizes.add(body.length);
      await page.save();
    }
    assert.equal(sizes.size, 1);
  }));

test("a message of another script changes nothing", () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const page = await new Client(at.url, { ledger: new FileLedger(path) }).join("test");
    const script = new BroadcastChannel(`privateer ${path}`);
    for (const told of [null, 7, {}, { experiment: `${at.url}/test`, body: new Uint8Array(500) }]) script.postMessage(told);
    await pause(50);
    script.close();
    const offered = page.arm.coins;
    page.choose(MARKED);
    assert.deepEqual([page.choice?.slot, page.client.ledger.uses.first.size], [offered, 1]);
    await page.save();
  }));

test("the final policy has coins of its own, the same in all pages and contexts, and a late report has others", () =>
  serving(LOCAL, async (at) => {
    const ledger = new MemoryLedger();
    const joined = () => new Client(at.url, { ledger }).join("test");
    const [early, late, later] = [await joined(), await joined(), await joined()];
    late.participation.drains = later.participation.drains = true;
    for (const context of [MARKED, OTHER]) for (const page of [late, later]) page.choose(context);
    early.choose(MARKED);
    assert.deepEqual([late.choice?.slot === later.choice?.slot, early.choice?.slot === late.choice?.slot], [true, false]);
    await Promise.all([late.save(), later.save(), early.save()]);
    assert.equal((await ledger.changeArm(`${at.url}/test`, (arm) => /** @type {any} */ (arm))).final, late.choice?.slot);
  }));
