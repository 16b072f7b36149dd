// @ts-check
/** A device pays before it sends, sends the same bytes until somebody decides, and never reports twice. */

import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Client, FileLedger, MemoryLedger } from "../src/node.js";
import { Notary, rejects, serving } from "./support/served.js";
import { vectors } from "./support/vectors.js";

const told = vectors("publications");
const LOCAL = Buffer.from(told[0].publication, "hex");
const SHUFFLED = Buffer.from(told[1].publication, "hex");
const CONTEXT = { x1: 0.3, x2: 0.9 };

test("one report, of the same bytes until somebody decides", () =>
  serving(LOCAL, async (at) => {
    const path = join(mkdtempSync(join(tmpdir(), "ledger-")), "ledger.json");
    const client = new Client(at.url, { ledger: new FileLedger(path), retryTimeout: 0 });
    const session = await client.join("test");
    session.choose(CONTEXT);
    at.answers = [[503, "unavailable"], [409, "round-unknown"], [409, "duplicate-report"]];
    assert.equal(await session.report(1), "pending");
    assert.equal(await session.report(1), "already-reported");
    // The device starts again with what it has on disk.
    const again = new Client(at.url, { ledger: new FileLedger(path), retryTimeout: 0 });
    assert.equal((await again.join("test")).reportRequested, false);
    assert.deepEqual(await again.flush(), { test: "accepted" });
    assert.deepEqual(await again.flush(), {});
    assert.equal(at.bodies.length, 3);
    assert.equal(new Set(at.bodies).size, 1);
  }));

for (const name of ["bandit under local", "trial of everybody under local"]) {
  const publication = Buffer.from(told.find((/** @type {any} */ one) => one.name === name).publication, "hex");

  test(`an experiment without features chooses without a context: ${name}`, () =>
    serving(publication, async (at) => {
      const client = new Client(at.url, { ledger: new MemoryLedger() });
      const session = await client.join("test");
      assert.deepEqual(session.features, []);
      assert.throws(() => session.choose(CONTEXT), { field: "x1" });
      const arm = session.choose();
      assert.ok(["a", "b", "c"].includes(arm));
      assert.equal(await session.report(1), "accepted");
      assert.equal((await client.arm("test", {}, { default: "other" })).name, arm);
    }));
}

test("nothing is sent that is not on the ledger", () =>
  serving(LOCAL, async (at) => {
    const ledger = new MemoryLedger();
    const session = await new Client(at.url, { ledger }).join("test");
    ledger.store.change = () => Promise.reject(new Error("the disk is full"));
    session.choose(CONTEXT);
    await assert.rejects(session.report(1), /disk/);
    assert.deepEqual(at.bodies, []);
  }));

test("in a pause people choose and are not asked", () =>
  serving(LOCAL, async (at) => {
    at.asks = "nobody";
    const ledger = new MemoryLedger();
    const session = await new Client(at.url, { ledger }).join("test");
    assert.ok(["a", "b", "c"].includes(session.choose(CONTEXT)));
    assert.equal(await session.report(1), "not-requested");
    const { payment, choice } = await ledger.entry(`${at.url}/test`);
    assert.deepEqual([at.bodies, payment, choice], [[], null, null]);
  }));

test("shuffled reports go to the shuffler that the application names", () =>
  serving(SHUFFLED, async (at) => {
    await rejects(new Client(at.url, { ledger: new MemoryLedger() }).join("test"), "terms-refused");
    const session = await new Client(at.url, { ledger: new MemoryLedger(), shuffler: at.url }).join("test");
    session.choose(CONTEXT);
    assert.equal(await session.report(0), "accepted");
  }));

test("errors name features and never values", () =>
  serving(LOCAL, async (at) => {
    const session = await new Client(at.url, { ledger: new MemoryLedger() }).join("test");
    assert.throws(() => session.choose({ x1: 0.123 }), { type: "input-invalid", field: "x2" });
    assert.throws(() => session.choose({ ...CONTEXT, x3: 0.123 }), { type: "input-invalid", field: "x3" });
    assert.deepEqual(at.bodies, []);
  }));

test("an outcome that does not fit is reported as none", () =>
  serving(LOCAL, async (at) => {
    const session = await new Client(at.url, { ledger: new MemoryLedger() }).join("test");
    session.choose(CONTEXT);
    assert.equal(await session.report(/** @type {any} */ ("0.123")), "accepted");
  }));

test("the first key and log are the server's", () =>
  serving(LOCAL, async (at) => {
    const path = join(mkdtempSync(join(tmpdir(), "ledger-")), "ledger.json");
    const first = new Client(at.url, { ledger: new FileLedger(path) });
    assert.equal(await first.head(), null);
    await first.join("test");
    const again = () => new Client(at.url, { ledger: new FileLedger(path) });
    assert.equal(await again().head(), (await at.notary.proof(LOCAL)).head);
    await again().join("test");
    at.notary = new Notary("privateer/log/7766554433221100");
    await rejects(again().join("test"), "key-changed");
    const serverKeys = [at.notary.key.toString("hex")];
    await new Client(at.url, { ledger: new FileLedger(path), serverKeys }).join("test");
    await again().join("test");
    await rejects(new Client(at.url, { ledger: new MemoryLedger(), serverKeys: ["ab".repeat(32)] }).join("test"), "key-changed");
  }));

/** Ask twice at once with one ledger, of a server that answers only when both have asked. @param {any} at @param {any[]} proofs @param {MemoryLedger} ledger */
async function together(at, proofs, ledger) {
  /** @type {(() => void)[]} */
  const held = [];
  /** @type {string | undefined} */
  let kept;
  let asked = 0;
  at.proof = async () => {
    const proof = proofs[asked++];
    if (asked > 2) return proofs.find((one) => one.head !== kept);
    if (asked < 2) await new Promise((resolve) => held.push(() => resolve(null)));
    held.forEach((go) => go());
    return proof;
  };
  const know = ledger.know.bind(ledger);
  ledger.know = async (server, known, before) => {
    const is = await know(server, known, before);
    kept = (await ledger.readKnownServer(at.url))?.head;
    return is;
  };
  return Promise.allSettled([1, 2].map(() => new Client(at.url, { ledger }).join("test")));
}

test("two pages of one device that are shown two logs find out", () =>
  serving(LOCAL, async (at) => {
    const other = Object.assign(new Notary(at.notary.origin), { private: at.notary.private, key: at.notary.key });
    at.notary.leaves.push(Buffer.alloc(32, 1));
    other.leaves.push(Buffer.alloc(32, 2));
    const proofs = [await at.notary.proof(LOCAL), await other.proof(LOCAL)];
    const results = await together(at, proofs, new MemoryLedger());
    const refused = results.flatMap((one) => (one.status === "rejected" ? [one.reason.type] : []));
    assert.deepEqual(refused, ["log-forked"]);
  }));

test("two pages of one device that are shown one log follow it", () =>
  serving(LOCAL, async (at) => {
    const proof = await at.notary.proof(LOCAL);
    const results = await together(at, [proof, proof], new MemoryLedger());
    assert.deepEqual(results.map((one) => one.status), ["fulfilled", "fulfilled"]);
  }));

test("a second key that comes while the first is met is not the server's", () =>
  serving(LOCAL, async (at) => {
    const ledger = new MemoryLedger();
    at.proof = async (proof) => {
      await ledger.know(at.url, { key: "ab".repeat(32), head: "another page was faster" }, null);
      return proof;
    };
    await rejects(new Client(at.url, { ledger }).join("test"), "key-changed");
  }));

test("a server that tells little of its log does not learn who has been there, and when", () =>
  serving(LOCAL, async (at) => {
    for (const isNew of [true, false]) {
      const client = new Client(at.url, { ledger: new MemoryLedger() });
      at.proof = (proof) => proof;
      if (!isNew) await client.join("test");
      const asked = [];
      at.proof = (proof) => (asked.push(proof), { ...proof, start: 32 });
      await rejects(client.join("test"), "proof-invalid");
      assert.equal(asked.length, 1);
    }
  }));

test("what is not signed or not in the log is not followed", () =>
  serving(LOCAL, async (at) => {
    const ledger = new MemoryLedger();
    const client = new Client(at.url, { ledger });
    at.proof = (proof) => ({ ...proof, index: 1 });
    await rejects(client.join("test"), "proof-invalid");
    at.proof = (proof) => ({ ...proof, start: 32, leaves: "" });
    await rejects(client.join("test"), "proof-invalid");
    at.proof = () => "no proof";
    await rejects(client.join("test"), "proof-invalid");
    at.proof = (proof) => ({ ...proof, head: proof.head.replace("\n1\n", "\n2\n") });
    await rejects(client.join("test"), "signature-invalid");
    at.notary.signed = () => "";
    await rejects(client.join("test"), "signature-invalid");
    assert.equal(await ledger.readKnownServer(at.url), null);
  }));
