// @ts-check
/** Many people in one process: each has an arm and a report, and the process asks once for all. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs, { mkdtempSync, readFileSync, readdirSync, renameSync, statSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";

import { Client, FileLedger, PeopleLedger } from "../src/node.js";
import { ask } from "../src/exchange.js";
import { PeopleDatabase } from "../src/ledgers/database.js";
import { changed, rejects, serving } from "../test/support/served.js";
import { vectors } from "../test/support/vectors.js";

const LOCAL = Buffer.from(vectors("publications")[0].publication, "hex");
const CONTEXT = { x1: 0.377190542, x2: 0.918273645 };
const drivers = [["node:sqlite", "DatabaseSync"], ["better-sqlite3", "default"]].map(async ([name, kind]) => new (await import(name))[kind](":memory:").close());
const database = (await Promise.allSettled(drivers)).some(({ status }) => status === "fulfilled");
const skip = database ? false : "needs Node 22.13, or better-sqlite3";
const somewhere = () => join(mkdtempSync(join(tmpdir(), "people-")), "people.db");
/** @param {{url: string}} at @param {string} path */
const clientOf = (at, path) => new Client(at.url, { ledger: new PeopleLedger(path) });

test("each person has an arm and one report, and one request fetches the policy for all", { skip }, () =>
  serving(LOCAL, async (at) => {
    const client = clientOf(at, somewhere());
    const [arms, began] = [new Map(), performance.now()];
    for (let i = 0; i < 40; i++) {
      const person = await client.person(`user-${i}`);
      arms.set(i, (await person.arm("test", CONTEXT, { default: null, within: 30 })).name);
      assert.equal(await person.report("test", 1), "accepted");
      assert.equal(await person.report("test", 1), "already-reported");
    }
    assert.ok(new Set(arms.values()).size > 1, "everybody got one arm");
    assert.equal(at.bodies.length, 40);
    // Once a second at most, for those who choose and for those who report.
    const most = 2 * (2 + (performance.now() - began) / 1000);
    assert.ok(at.requests.filter(({ url }) => url.includes("/policy")).length <= most);
    for (const [i, arm] of arms) assert.equal((await (await client.person(`user-${i}`)).arm("test", CONTEXT, { default: null, within: 30 })).name, arm);
  }));

test("the folder is on disk before anything is paid, and the log of writes after it", { skip }, async (t) => {
  const path = somewhere();
  const { openSync, fsyncSync } = fs;
  /** @type {Map<number, string>} */
  const names = new Map();
  /** @type {string[]} */
  const flushed = [];
  t.after(() => Object.assign(fs, { openSync, fsyncSync }) && syncBuiltinESMExports());
  fs.openSync = (name, ...how) => {
    const file = openSync(name, ...how);
    names.set(file, String(name));
    return file;
  };
  fs.fsyncSync = (file) => void (fsyncSync(file), flushed.push(names.get(file) ?? ""));
  syncBuiltinESMExports();
  const database = await PeopleDatabase.open(path, new Uint8Array(32)); // a file of a key would flush the folder, too
  const [none, common] = [{ person: null, common: null }, { person: null, common: "{}" }];
  const entry = { person: "00", experiment: "a", isOpen: false, isForgotten: false };
  assert.equal(database.swap({ ...entry, before: none, after: common, isPaid: false }), null);
  assert.deepEqual(flushed, [dirname(path)]);
  assert.deepEqual(database.swap({ ...entry, before: none, after: common, isPaid: true }), common); // somebody was faster
  assert.equal(database.swap({ ...entry, before: common, after: { ...common, person: "{}" }, isPaid: true }), null);
  assert.deepEqual(flushed, [dirname(path), `${path}-wal`]);
  database.close();
});

test("what is paid is on disk before it is sent", { skip }, () =>
  serving(LOCAL, async (at) => {
    const ledger = new PeopleLedger(somewhere());
    const ask = ledger.ask.bind(ledger);
    /** @type {number[]} */
    const paid = [];
    ledger.ask = async (action, ...values) => {
      const result = await ask(action, ...values);
      if (action === "swap" && /** @type {any} */ (values[0]).isPaid) paid.push(at.bodies.length);
      return result;
    };
    const person = await new Client(at.url, { ledger }).person("user-7");
    await person.arm("test", CONTEXT, { default: null, within: 30 });
    assert.equal(await person.report("test", 1), "accepted");
    assert.deepEqual([paid, at.bodies.length], [[0], 1]);
  }));

test("a ledger that another process has locked gives the default, and holds nothing else", { skip }, () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const client = clientOf(at, path);
    await (await client.person("first")).arm("test", CONTEXT, { default: null, within: 30 });
    const other = await PeopleDatabase.open(path, null);
    other.database.exec("BEGIN IMMEDIATE");
    const person = await client.person("second");
    const shown = await person.arm("test", CONTEXT, { default: "standard" });
    other.database.exec("ROLLBACK");
    assert.deepEqual([shown.name, await shown.report(1)], ["standard", "not-requested"]);
    assert.equal(shown.fallback, "the ledger did not answer within 0.3 s"); // the lock itself is waited for far longer, and elsewhere
    assert.notEqual((await person.arm("test", CONTEXT, { default: "standard", within: 30 })).name, "standard");
    other.close();
  }));

test("a slow ledger is named while another person's request is not answered", { skip }, () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const person = await clientOf(at, path).person("first");
    await person.arm("test", CONTEXT, { default: null, within: 30 });
    const other = await PeopleDatabase.open(path, null);
    other.database.exec("BEGIN IMMEDIATE");
    /** @type {(value: any) => void} */
    let answer = () => {};
    const { fetch } = globalThis;
    globalThis.fetch = () => new Promise((resolve) => (answer = resolve));
    const request = ask(`${at.url}/other`, {}, 30);
    globalThis.fetch = fetch;
    const shown = await (await clientOf(at, path).person("second")).arm("test", CONTEXT, { default: "standard" });
    answer(new Response(""));
    await request;
    other.database.exec("ROLLBACK");
    other.close();
    assert.equal(shown.fallback, "the ledger did not answer within 0.3 s");
  }));

test("of two requests at once, one too late, the arm that was shown stays, and its report counts", { skip }, () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const person = await clientOf(at, path).person("user-7");
    const late = await person.inTime.session("test", 30);
    const other = await PeopleDatabase.open(path, null);
    other.database.exec("BEGIN IMMEDIATE");
    late.choose(CONTEXT);
    await rejects(person.confirmChoice(late, performance.now() / 1000, 0), "unavailable");
    const shown = person.arm("test", CONTEXT, { default: "standard", within: 30 });
    other.database.exec("ROLLBACK");
    other.close();
    const { name, report } = await shown;
    await late.save();
    for (let reads = 0; reads < 20; reads++) assert.ok(await person.ledger.choice(`${at.url}/test`));
    const again = await (await clientOf(at, path).person("user-7")).arm("test", CONTEXT, { default: "standard", within: 30 });
    assert.equal(again.name, name);
    assert.notEqual(await report(1), "not-requested");
  }));

test("answers that come at once are passed on in several turns of the event loop", { skip }, async () => {
  const ledger = new PeopleLedger(somewhere());
  const thread = await ledger.thread();
  /** @type {number[]} */
  const turns = [];
  let turn = 0;
  const answers = Array.from({ length: 5 }, (_, i) => ({ number: 100 + i, result: null }));
  const work = () => {
    turns.push(turn);
    for (const began = performance.now(); performance.now() - began < 5; );
  };
  for (const { number } of answers) thread.requests.set(number, { resolve: work, reject: () => {} });
  await new Promise((resolve) => setImmediate(resolve)); // the turn of the answer that opened the database
  const allPassed = new Promise((resolve) => {
    const count = () => (++turn, turns.length < answers.length ? setImmediate(count) : resolve(null));
    setImmediate(count);
  });
  for (const answer of answers) thread.receive(answer);
  await allPassed;
  assert.equal(new Set(turns).size, answers.length);
  await ledger.close();
});

test("workers that are killed lose no report and make none twice, and arms that were shown stay", { skip }, () =>
  serving(LOCAL, async (at) => {
    const [path, count] = [somewhere(), 24];
    const code = `
      import { Client, PeopleLedger } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
      const client = new Client(${JSON.stringify(at.url)}, { ledger: new PeopleLedger(${JSON.stringify(path)}), retryTimeout: 0.1 });
      const keys = Array.from({ length: ${count} }, (_, key) => key);
      const visit = async (key) => {
        const person = await client.person(key);
        const { name } = await person.arm("test", ${JSON.stringify(CONTEXT)}, { default: null, within: 30 });
        console.log("shown " + key + " " + name);
        console.log("reported " + key + " " + (await person.report("test", 1)));
      };
      await Promise.all(Array.from({ length: 6 }, async () => { while (keys.length) await visit(keys.shift()); }));
      console.log("flushed " + JSON.stringify(await client.flushPeople()));`;
    /** @type {Set<string>} */
    const shown = new Set();
    /** @type {string[]} */
    let lines = [];
    for (const nLines of [5, 17, 29, Infinity]) {
      at.away = nLines === 17 || nLines === 29; // reports that are paid for wait
      const worker = spawn(process.execPath, ["--input-type=module", "--eval", code], { stdio: ["ignore", "pipe", "inherit"] });
      lines = [];
      for await (const line of createInterface({ input: worker.stdout })) {
        lines.push(line);
        if (line.startsWith("shown")) shown.add(line);
        if (lines.length === nLines) worker.kill("SIGKILL");
      }
    }
    assert.equal(shown.size, count, `${[...shown]}`);
    assert.ok(lines.at(-1)?.startsWith("flushed"), lines.at(-1));
    assert.equal(lines.filter((line) => / (accepted|already-reported)$/.test(line)).length, count, `${lines}`);
    assert.equal(new Set(at.bodies.map((body) => Buffer.from(body).toString("hex"))).size, count);
  }));

test("four requests after a thread has ended begin one", { skip }, async () => {
  const ledger = new PeopleLedger(somewhere());
  const thread = await ledger.thread();
  await thread.worker.terminate();
  const threads = await Promise.all(Array.from({ length: 4 }, () => ledger.thread()));
  assert.equal(new Set(threads).size, 1);
  assert.notEqual(threads[0], thread);
  await ledger.close();
});

test("a thread that ends gives the default and says so, and the next request begins another", { skip }, () =>
  serving(LOCAL, async (at) => {
    const ledger = new PeopleLedger(somewhere());
    const client = new Client(at.url, { ledger, warn: () => {} });
    const person = await client.person("user-7");
    const { name } = await person.arm("test", CONTEXT, { default: null, within: 30 });
    const thread = await ledger.thread();
    const ask = thread.ask.bind(thread);
    thread.ask = (...question) => [ask(...question), thread.worker.terminate()][0]; // while it is asked
    const shown = await (await client.person("other")).arm("test", CONTEXT, { default: "standard", within: 30 });
    assert.equal(shown.name, "standard");
    assert.match(shown.fallback ?? "", /^ledger: cannot use .*people\.db \(its thread has ended\): flush\(\) sends what was paid before$/);
    assert.equal((await (await client.person("user-7")).arm("test", CONTEXT, { default: null, within: 30 })).name, name);
    await ledger.close();
    assert.ok((await ledger.thread()) !== thread);
    await ledger.close();
  }));

test("a process that has nothing else to do ends, with what was kept and the database open", { skip }, () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const code = `
      import { Client, PeopleLedger } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
      const client = new Client(${JSON.stringify(at.url)}, { ledger: new PeopleLedger(${JSON.stringify(path)}) });
      const person = await client.person("user-7");
      const session = await person.join("test");
      session.choose(${JSON.stringify(CONTEXT)});`;
    const program = spawn(process.execPath, ["--input-type=module", "--eval", code], { stdio: "inherit" });
    assert.deepEqual(await new Promise((resolve) => program.on("exit", (...how) => resolve(how))), [0, null]);
    const person = await clientOf(at, path).person("user-7");
    assert.ok((await person.resume("test")).arms.length);
  }));

test("what names nobody is no person", { skip }, async () => {
  const client = new Client("https://a", { ledger: new PeopleLedger(somewhere()) });
  for (const key of [undefined, null, "", {}, { id: 7 }, ["a"], true, NaN, 1.5]) await rejects(client.person(/** @type {any} */ (key)), "input-invalid");
  assert.ok(await client.person(7));
});

test("a choice belongs to its person, whoever can write the file", { skip }, () =>
  serving(LOCAL, async (at) => {
    const ledger = new PeopleLedger(somewhere());
    const client = new Client(at.url, { ledger });
    for (const key of ["a", "b"]) await (await client.person(key)).arm("test", CONTEXT, { default: null, within: 30 });
    const [one, other] = await Promise.all(["a", "b"].map((key) => ledger.of(key)));
    const { choice } = await one.entry(`${at.url}/test`);
    await other.set(`${at.url}/test`, () => ({ choice }));
    assert.ok(await one.choice(`${at.url}/test`));
    await rejects(other.choice(`${at.url}/test`), "input-invalid");
  }));

test("one person in eight requests at once, of two processes, has one arm and one report", { skip }, () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const clients = [clientOf(at, path), clientOf(at, path)];
    for (let one = 0; one < 10; one++) {
      const people = await Promise.all(Array.from({ length: 8 }, (_, i) => clients[i % 2].person(one)));
      const shown = await Promise.all(people.map((person) => person.arm("test", CONTEXT, { default: null, within: 30 })));
      assert.equal(new Set(shown.map(({ name }) => name)).size, 1);
      const outcomes = await Promise.all(people.map((person) => person.report("test", 1)));
      assert.equal(outcomes.filter((outcome) => outcome === "accepted").length, 1, `${outcomes}`);
    }
    assert.equal(at.bodies.length, 10);
  }));

test("what waits is sent for everybody, once", { skip }, () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const client = new Client(at.url, { ledger: new PeopleLedger(path), retryTimeout: 0.2 });
    for (const key of ["a", "b", "c"]) {
      const session = await (await client.person(key)).join("test");
      session.choose(CONTEXT);
      await session.save();
    }
    at.away = true;
    for (const key of ["a", "b", "c"]) assert.equal(await (await client.person(key)).report("test", 0.5), "pending");
    assert.deepEqual(await client.flushPeople(), { pending: 3 });
    at.away = false;
    assert.deepEqual(await clientOf(at, path).flushPeople(), { accepted: 3 });
    assert.equal(at.bodies.length, 3);
    assert.deepEqual(await client.flushPeople(), {});
  }));

test("the database has no key, context or arm of a person, nobody else may read it, and without its key nothing goes on", { skip }, () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const client = clientOf(at, path);
    const person = await client.person("alice@example.org");
    const session = await person.join("test");
    const arm = session.choose(CONTEXT);
    await session.save();
    const files = readdirSync(join(path, "..")).map((name) => [name, readFileSync(join(path, "..", name), "latin1")]);
    for (const [name, text] of files) {
      for (const secret of ["alice", "0.377190542", `"${arm}"`]) assert.ok(name.endsWith(".key") || !text.includes(secret), `${name} has ${secret}`);
      assert.equal(statSync(join(path, "..", name)).mode & 0o77, 0, name);
    }
    assert.equal((await clientOf(at, path).person("alice@example.org").then((same) => same.resume("test"))).choose({}), arm);
    renameSync(`${path}.key`, `${path}.gone`);
    const joined = (/** @type {Client} */ other) => other.person("alice@example.org").then((same) => same.join("test"));
    await rejects(joined(clientOf(at, path)), "ledger-unwritable");
    await rejects(joined(new Client(at.url, { ledger: new PeopleLedger(path, { key: new Uint8Array(32) }) })), "ledger-unwritable");
  }));

test("a client is one person or many, and each says what to use", { skip }, () =>
  serving(LOCAL, async (at) => {
    const many = clientOf(at, somewhere());
    await rejects(many.join("test"), "input-invalid");
    await rejects(many.person(""), "input-invalid");
    await rejects(new Client(at.url, { ledger: new FileLedger(somewhere()) }).person("a"), "input-invalid");
  }));

test("what one person's server contradicts is refused for everybody, and forgetting one leaves the others", { skip }, () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const client = clientOf(at, path);
    const [first, second] = [await client.person("first"), await client.person("second")];
    const sessions = [await first.join("test"), await second.join("test")];
    const [, arm] = sessions.map((session) => session.choose(CONTEXT));
    await Promise.all(sessions.map((session) => session.save()));
    const kept = Buffer.from((await first.ledger.entry(`${at.url}/test`)).choice ?? []).toString("base64");
    assert.ok(kept.length > 100);
    await (await first.resume("test")).forget();
    for (const name of readdirSync(join(path, ".."))) assert.ok(!readFileSync(join(path, "..", name), "latin1").includes(kept), name);
    await rejects(first.resume("test"), "input-invalid");
    assert.equal((await second.resume("test")).choose({}), arm);
    at.publication = changed(LOCAL, {}, 9);
    at.proof = (proof) => ({ ...proof, inclusion: Buffer.alloc(32).toString("base64") });
    await new Promise((resolve) => setTimeout(resolve, 1100));
    await assert.rejects((await client.person("third")).join("test"));
  }));

test("a person takes 1.5 kB", { skip }, () =>
  serving(LOCAL, async (at) => {
    const path = somewhere();
    const client = clientOf(at, path);
    const people = 200;
    await (await client.person("warm")).arm("test", CONTEXT, { default: null, within: 30 });
    for (let i = 0; i < people; i++) {
      const person = await client.person(i);
      await person.arm("test", CONTEXT, { default: null, within: 30 });
      await person.report("test", 1);
    }
    await client.people?.ledger.close();
    const bytes = statSync(path).size;
    assert.ok(bytes < 1536 * people + 32_768, `${bytes / people} bytes a person`);
  }));
