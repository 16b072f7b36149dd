// @ts-check
/** An experiment costs no page its time or its errors: the default is shown at once, and why is said. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Client as DeviceClient } from "../src/index.js";
import { Client, FileLedger, MemoryLedger } from "../src/node.js";
import { rejects, serving } from "./support/served.js";
import { listening } from "./support/silent.js";
import { vectors } from "./support/vectors.js";

const LOCAL = Buffer.from(vectors("publications")[0].publication, "hex");
const CONTEXT = { x1: 0.3, x2: 0.9 };
const OTHER = { x1: 0.9, x2: 0.1 };
const WITHIN = 0.15;
/** Seconds that a busy machine may add. */
const GRACE = 0.25;

const { connections } = JSON.parse(readFileSync(new URL("../../../docs/behaviour.json", import.meta.url), "utf8"));

/** @template T @param {() => Promise<T>} use @returns {Promise<[T, number]>} */
async function timed(use) {
  const began = performance.now();
  const found = await use();
  return [found, (performance.now() - began) / 1000];
}

for (const { service: kind, words } of connections) {
  const said = (/** @type {string} */ url, /** @type {number} */ seconds) => words.replace("{url}", url).replace("{seconds}", `${seconds}`);

  test(`the default is shown in time: ${kind}`, () =>
    listening(kind, async (url) => {
      /** @type {string[]} */
      const warnings = [];
      // Who says no at once has time to say so, on a machine that is busy.
      const within = kind === "hangs" ? WITHIN : 5;
      const client = new Client(url, { ledger: new MemoryLedger(), timeout: 0.6, warn: (message) => warnings.push(message) });
      for (let page = 0; page < 3; page++) {
        const [shown, seconds] = await timed(() => client.arm("test", CONTEXT, { default: "control", within }));
        assert.ok(seconds < (page && kind === "hangs" ? 0 : within) + GRACE, `${seconds}`);
        assert.deepEqual([shown.name, shown.fallback, await shown.report(1)], ["control", said(url, within), "not-requested"]);
      }
      assert.deepEqual(warnings, [`test: the default is shown: ${said(url, within)}`], "each reason is told once");
    }));
}

/** A server that takes its time for publications. @param {number} seconds @param {(at: import("./support/served.js").Served) => Promise<void>} use */
const slow = (seconds, use) =>
  serving(LOCAL, async (at) => {
    const bare = at.notary.proof.bind(at.notary);
    at.notary.proof = async (publication) => {
      await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
      return bare(publication);
    };
    await use(at);
  });

test("a slow server serves the next page, and whoever has an arm keeps it", () =>
  slow(0.4, async (at) => {
    const ledger = new MemoryLedger();
    const how = { default: "control", within: WITHIN };
    const client = new Client(at.url, { ledger, warn: () => {} });
    const first = await client.arm("test", CONTEXT, how);
    assert.deepEqual([first.name, await first.report(1)], ["control", "not-requested"]);
    await new Promise((resolve) => setTimeout(resolve, 1300));
    const second = await client.arm("test", CONTEXT, how);
    assert.ok(second.session?.arms.includes(second.name));
    assert.equal(await second.report(1), "accepted");
    at.publication = Buffer.from(LOCAL); // the page is loaded again, and the server is slow
    at.away = true;
    const third = await new Client(at.url, { ledger, warn: () => {} }).arm("test", OTHER, how);
    assert.deepEqual([third.name, third.fallback, await third.report(0)], [second.name, null, "already-reported"]);
  }));

test("what a developer gets wrong is no error of the page", () =>
  serving(LOCAL, async (at) => {
    for (const [context, field] of /** @type {[any, string][]} */ ([[{}, "x1"], [{ ...CONTEXT, other: 1 }, "other"], [null, "context"]])) {
      const client = new Client(at.url, { ledger: new MemoryLedger(), warn: () => {} });
      const shown = await client.arm("test", context, { default: "control", within: 5 });
      assert.deepEqual([shown.name, shown.fallback?.split(":")[0]], ["control", field]);
    }
  }));

test("options in the place of the context are refused in words", async () => {
  const client = /** @type {any} */ (new Client("http://127.0.0.1:59999", { ledger: new MemoryLedger() }));
  await assert.rejects(client.arm("test", { default: "control" }), /^PrivateerError: options: give \{ default \} after the context/);
});

test("construction does nothing, also where a platform lacks what a device needs", async () => {
  const client = new DeviceClient("http://127.0.0.1:59999");
  await rejects(client.join("test"), "ledger-unwritable");
  const shown = await new DeviceClient("http://127.0.0.1:59999", { warn: () => {} }).arm("test", {}, { default: "control" });
  assert.equal(shown.name, "control");
  assert.match(`${shown.fallback}`, /there is no IndexedDB here: join in the browser/);
});

test("a path is a ledger, and the four lines can be run twice", () =>
  serving(LOCAL, async (at) => {
    const path = join(mkdtempSync(join(tmpdir(), "ledger-")), "x.json");
    const arms = new Set();
    /** @type {string[]} */
    const outcomes = [];
    for (let time = 0; time < 2; time++) {
      const session = await new Client(at.url, { ledger: path }).join("test");
      arms.add(session.choose(CONTEXT));
      outcomes.push(await session.report(1));
    }
    assert.deepEqual([arms.size, outcomes], [1, ["accepted", "already-reported"]]);
    assert.equal((await new FileLedger(path).entry(`${at.url}/test`)).payment?.made, 1);
  }));
