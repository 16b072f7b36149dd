// @ts-check
/** People who report late, come back, have no network, or a ledger that cannot be written. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Client, FileLedger, MemoryLedger } from "../src/node.js";
import { ALLOWED } from "../src/states.js";
import { changed, clockAt, rejects, serving } from "./support/served.js";
import { vectors } from "./support/vectors.js";

const LOCAL = Buffer.from(vectors("publications")[0].publication, "hex");
const RECORDS = Buffer.from(vectors("records").find((/** @type {any} */ one) => one.name === "partition, four reports, under none: as it is").publication, "base64");
const CONTEXT = { x1: 0.3, x2: 0.9 };
const HOUR = 3600;
const folder = () => mkdtempSync(join(tmpdir(), "ledger-"));

test("where outcomes come late the report is made after the window, whatever happened when", () =>
  serving(changed(LOCAL, { conversion_window_seconds: HOUR }), async (at) => {
    const [clock, path] = [clockAt(1_000_000), join(folder(), "ledger.json")];
    const client = () => new Client(at.url, { ledger: new FileLedger(path), clock, retryTimeout: 0 });
    const session = await client().join("test");
    const arm = session.choose(CONTEXT);
    assert.equal(await session.report(0), "pending");
    assert.equal(await session.report(1), "pending");
    assert.deepEqual([await client().flush(), at.bodies], [{}, []]);
    // The device starts again: the choice stands, whatever the context.
    const again = await client().join("test");
    assert.equal(again.choose({ x1: 0.9, x2: 0.1 }), arm);
    assert.equal((await client().resume("test")).choose(CONTEXT), arm);
    clock.at.time += 1.1 * HOUR;
    assert.deepEqual(await client().flush(), { test: "accepted" });
    assert.equal(at.bodies.length, 1);
    await rejects(client().resume("test"), "already-reported");
    assert.equal((await client().join("test")).reportRequested, false);
  }));

test("without an outcome the default is reported, and bytes do not tell", () =>
  serving(changed(LOCAL, { conversion_window_seconds: HOUR }), async (at) => {
    const clock = clockAt(1_000_000);
    for (const reward of [1, null]) {
      const client = new Client(at.url, { ledger: new MemoryLedger(), clock });
      const session = await client.join("test");
      session.choose(CONTEXT);
      if (reward !== null) await session.report(reward);
      await session.keeping;
      clock.at.time += 1.1 * HOUR;
      assert.deepEqual(await client.flush(), { test: "accepted" });
    }
    assert.equal(at.bodies[0].length, at.bodies[1].length);
    assert.notEqual(at.bodies[0], at.bodies[1]);
  }));

test("two pages at once: the first choice that is kept stands, and nobody tells of another", () =>
  serving(changed(LOCAL, { conversion_window_seconds: HOUR }), async (at) => {
    const [clock, ledger] = [clockAt(1_000_000), new MemoryLedger()];
    const client = new Client(at.url, { ledger, clock });
    const [one, other] = [await client.join("test"), await client.join("test")];
    one.choose(CONTEXT);
    other.choose({ x1: 0.8, x2: 0.1 });
    assert.deepEqual([await other.report(1), await one.report(0)], ["not-requested", "pending"]);
  }));

test("a report alone is made one time of several, drawn in advance", () =>
  serving(changed(LOCAL, { reports_per_person: 4, report_period_seconds: HOUR }), async (at) => {
    const [clock, ledger] = [clockAt(1_000_000), new MemoryLedger()];
    const outcomes = [];
    for (let time = 0; time < 6; time++, clock.at.time += HOUR) {
      const session = await new Client(at.url, { ledger, clock }).join("test");
      session.choose(CONTEXT);
      outcomes.push(await session.report(1).catch((error) => error.type));
      // Within a period nothing is drawn anew.
      assert.equal((await new Client(at.url, { ledger, clock }).join("test")).reportRequested, false);
    }
    assert.equal(outcomes.filter((one) => one === "accepted").length, 1);
    assert.ok(outcomes.indexOf("accepted") < 4);
    assert.equal(at.bodies.length, 1);
  }));

test("reports that share a promise are made once a period and a round, until none is left", () =>
  serving(RECORDS, async (at) => {
    const [clock, ledger] = [clockAt(1_000_000), new MemoryLedger()];
    const limits = { allow_central: true, epsilon: Infinity };
    const once = async () => {
      const session = await new Client(at.url, { ledger, clock, limits }).join("test");
      session.choose(CONTEXT);
      return session.report(1).catch((error) => error.type);
    };
    assert.deepEqual([await once(), await once()], ["accepted", "already-reported"]);
    clock.at.time += 24 * HOUR;
    assert.equal(await once(), "not-requested", "two reports to one round");
    const outcomes = [];
    for (let version = 5; version < 9; version++, clock.at.time += 24 * HOUR) {
      at.publication = changed(RECORDS, {}, version);
      outcomes.push(await once());
    }
    assert.deepEqual(outcomes, ["accepted", "accepted", "accepted", "already-reported"]);
    at.publication = changed(RECORDS, { reports_per_person: 5 }, 9);
    await rejects(new Client(at.url, { ledger, clock, limits }).join("test"), "terms-refused");
  }));

test("a further report under another period than that of the first one is refused", () =>
  serving(RECORDS, async (at) => {
    const [clock, ledger] = [clockAt(1_000_000), new MemoryLedger()];
    const limits = { allow_central: true, epsilon: Infinity };
    const reported = async () => {
      const session = await new Client(at.url, { ledger, clock, limits }).join("test");
      session.choose(CONTEXT);
      return session.report(1);
    };
    assert.equal(await reported(), "accepted");
    const { payment } = await ledger.entry(`${at.url}/test`);
    assert.ok(JSON.parse(payment?.pinned ?? "[]").includes("visible"), "who may see arms is part of the promise");
    clock.at.time += 24 * HOUR;
    at.publication = changed(RECORDS, { report_period_seconds: 12 * HOUR }, 5);
    await rejects(reported(), "terms-refused");
    assert.equal(at.bodies.length, 1);
    at.publication = changed(RECORDS, {}, 6);
    assert.equal(await reported(), "accepted");
  }));

test("without a network the device decides by what it has checked before, and the report waits", () =>
  serving(LOCAL, async (at) => {
    const [clock, ledger] = [clockAt(1_000_000), new MemoryLedger()];
    const client = new Client(at.url, { ledger, clock, retryTimeout: 0 });
    at.away = true;
    await rejects(client.join("test"), "unavailable");
    at.away = false;
    await client.join("test");
    at.away = true;
    const session = await client.join("test");
    assert.ok(session.offline && session.arms.includes(session.choose(CONTEXT)));
    assert.equal(await session.report(1), "pending");
    at.away = false;
    assert.deepEqual(await client.flush(), { test: "accepted" });
    assert.equal(at.bodies.length, 1);
  }));

test("a server that goes away between the payment and the answer gets the same bytes later", () =>
  serving(LOCAL, async (at) => {
    const client = new Client(at.url, { ledger: new MemoryLedger(), retryTimeout: 0 });
    const session = await client.join("test");
    session.choose(CONTEXT);
    at.away = true;
    assert.equal(await session.report(1), "pending");
    assert.equal(await session.report(1), "already-reported");
    at.away = false;
    assert.deepEqual(await client.flush(), { test: "accepted" });
  }));

test("processes that report at the same time report once", () =>
  serving(LOCAL, async (at) => {
    const path = join(folder(), "ledger.json");
    const script = `
      import { Client, FileLedger } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
      const session = await new Client(${JSON.stringify(at.url)}, { ledger: new FileLedger(${JSON.stringify(path)}) }).join("test");
      session.choose(${JSON.stringify(CONTEXT)});
      console.log(await session.report(1).catch((error) => error.type));`;
    const one = () =>
      new Promise((resolve) => {
        const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: ["ignore", "pipe", "inherit"] });
        let said = "";
        child.stdout.setEncoding("utf8").on("data", (text) => (said += text));
        child.on("close", () => resolve(said)); // until it ends, it may be writing what its ledger keeps besides
      });
    const found = await Promise.all(Array.from({ length: 6 }, one));
    assert.equal(found.filter((line) => line === "accepted\n").length, 1, found.join());
    assert.equal(new Set(at.bodies).size, 1);
    assert.deepEqual(readdirSync(join(path, "..")).map((name) => name.replace(/\d+$/, "N")), ["ledger.json.N", "ledger.json.key"], "old files are left");
  }));

test("changes of one file by many are all there", async () => {
  const path = join(folder(), "ledger.json");
  const ledgers = [new FileLedger(path), new FileLedger(path)];
  await Promise.all(Array.from({ length: 40 }, (_, i) => ledgers[i % 2].remember(`https://a/${i}`, new Uint8Array([i]))));
  assert.equal((await new FileLedger(path).names()).length, 40);
  assert.deepEqual((await ledgers[1].entry("https://a/7")).publication, new Uint8Array([7]));
});

test("a ledger that cannot be written means no report, in words", () =>
  serving(LOCAL, async (at) => {
    const gone = new FileLedger(join(folder(), "nowhere", "ledger.json"));
    await rejects(new Client(at.url, { ledger: gone }).join("test"), "ledger-unwritable");
    const path = join(folder(), "ledger.json");
    const ledger = new FileLedger(path);
    const session = await new Client(at.url, { ledger }).join("test");
    session.choose(CONTEXT);
    /** @type {any} */ (ledger.store).path = join(folder(), "nowhere", "ledger.json");
    await assert.rejects(session.report(1), /nothing was paid or sent/);
    assert.deepEqual(at.bodies, []);
  }));

test("a damaged ledger is left as it is, and not quoted", () =>
  serving(LOCAL, async (at) => {
    const path = join(folder(), "ledger.json");
    writeFileSync(`${path}.3`, '{"choice": secret');
    const joining = new Client(at.url, { ledger: new FileLedger(path) }).join("test");
    await assert.rejects(joining, (error) => {
      const { message, type } = /** @type {any} */ (error);
      return type === "ledger-unwritable" && /damaged/.test(message) && !/secret/.test(message);
    });
    assert.equal(readFileSync(`${path}.3`, "utf8"), '{"choice": secret');
  }));

test("values without a place are named once, and never shown", () =>
  serving(LOCAL, async (at) => {
    /** @type {string[]} */
    const warnings = [];
    const client = new Client(at.url, { ledger: new MemoryLedger(), warn: (message) => warnings.push(message) });
    const session = await client.join("test");
    assert.deepEqual(session.features, ["x1", "x2"]);
    session.choose({ x1: "secret", x2: null });
    session.choose({ x1: "secret", x2: 0.5 }, { fresh: true });
    assert.deepEqual(warnings, ["x1: should be a number; it counts as missing", "x2: should be a number; it counts as missing"]);
    assert.throws(() => session.choose(/** @type {any} */ (null), { fresh: true }), { type: "input-invalid", field: "context" });
  }));

test("what an application gets wrong is said at once", () => {
  const ledger = new MemoryLedger();
  assert.throws(() => new Client("learn.example", { ledger }), { type: "input-invalid", field: "server" });
  assert.throws(() => new Client("https://a", { ledger, shuffler: "ftp://b" }), { field: "shuffler" });
  assert.throws(() => new Client("https://a", { ledger, limits: /** @type {any} */ ({ epsilo: 1 }) }), { field: "limits.epsilo" });
  assert.throws(() => new Client("https://a", { ledger, timeout: 0 }), { field: "timeout" });
});

/** What a page may do while its report is on the way. @type {Record<string, (session: import("../src/session.js").Session) => any>} */
const MEANWHILE = {
  choose: (session) => session.choose(CONTEXT),
  "choose anew": (session) => session.choose(CONTEXT, { fresh: true }),
  "choose, not sticky": (session) => session.choose(CONTEXT, { sticky: false }),
  report: (session) => session.report(0),
  forget: (session) => session.forget(),
};

for (const [name, act] of Object.entries(MEANWHILE)) {
  for (const end of ["taken", "declined", "expired"]) {
    test(`at any step of a report a page may ${name}: ${end}`, () =>
      serving(LOCAL, async (at) => {
        for (let when = 0, steps = Infinity; when < steps; when++) {
          Object.assign(at, { publication: LOCAL, away: false, bodies: [] });
          const [ledger, clock] = [new MemoryLedger(), clockAt(1.8e9)];
          const session = await new Client(at.url, { ledger, clock, retryTimeout: 0, warn: () => {} }).join("test");
          session.choose(CONTEXT);
          await session.save();
          if (end === "expired") at.publication = changed(LOCAL, {}, 1_000_001);
          at.away = end === "declined";
          clock.at.time += 60;
          let step = 0;
          /** @type {Promise<any>} */
          let other = Promise.resolve();
          const paid = async () => (await ledger.entry(`${at.url}/test`)).payment !== null;
          let isPaid = null;
          for (const way of /** @type {const} */ (["read", "change"])) {
            const asked = /** @type {any} */ (ledger.store[way].bind(ledger.store));
            ledger.store[way] = /** @type {any} */ ((/** @type {any[]} */ ...parts) => {
              if (step++ === when) other = Promise.resolve(act(session)).then(async () => (isPaid = await paid()));
              return asked(...parts);
            });
          }
          await session.report(1);
          steps = step;
          await other;
          assert.ok(at.bodies.length <= 1, "two reports");
          if (name === "forget" && end === "declined") {
            at.away = false;
            await session.client.flush();
          }
          if (name === "forget" && isPaid !== null) assert.equal(await paid(), isPaid, "what is erased is not reported");
          assert.ok(Object.hasOwn(ALLOWED, session.state), session.state);
          assert.ok(["a", "b", "c"].includes(session.choose(CONTEXT)));
          await session.keeping;
        }
      }));
  }
}
