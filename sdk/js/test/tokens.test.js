// @ts-check
/** Upload tokens: fetched, spent and replaced as docs/wire says, and by no key that could tell a device from others. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { hex } from "../src/bytes.js";
import { Client, FileLedger, MemoryLedger } from "../src/node.js";
import { serverName } from "../src/tokens/token.js";
import { Mint, directory } from "./support/issuing.js";
import { changed, clockAt, rejects, serving } from "./support/served.js";
import { vectors } from "./support/vectors.js";

const LOCAL = Buffer.from(vectors("publications")[0].publication, "hex");
const SHUFFLED = Buffer.from(vectors("publications")[1].publication, "hex");
const CONTEXT = { x1: 0.3, x2: 0.9 };
const MINTS = [new Mint(), new Mint(), new Mint()];
const SPENT = /** @type {[number, string]} */ ([401, "token-spent"]);

/** A server whose reports need tokens, and an issuer that signs them: the same one, for it has two pages. @param {import("./support/served.js").Served} at */
function issues(at, mint = MINTS[0]) {
  at.keys = directory(serverName(at.url), [mint]);
  at.sign = (request) => mint.sign(request);
}

/** @param {import("./support/served.js").Served} at @param {any} [more] */
const device = (at, more = {}) => new Client(at.url, { ledger: new MemoryLedger(), issuer: at.url, retryTimeout: 0, warn: () => {}, ...more });

/** What was asked of pages that end so. @param {import("./support/served.js").Served} at @param {string} ending */
const asked = (at, ending) => at.requests.filter(({ url }) => url.endsWith(ending));

test("joining gets a token, a report spends it, and does not ask the issuer", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const session = await device(at).join("test");
    assert.equal(asked(at, "/tokens").length, 1);
    const before = at.requests.length;
    session.choose(CONTEXT);
    assert.equal(await session.report(1), "accepted");
    const after = at.requests.slice(before).filter(({ url }) => /token/.test(url));
    assert.deepEqual(after, []);
    const [{ headers }] = asked(at, "/reports");
    assert.ok(MINTS[0].signed(headers.authorization));
  }));

test("without an issuer no token is asked for, and the report waits where one is needed", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const session = await device(at, { issuer: undefined }).join("test");
    session.choose(CONTEXT);
    at.answers = [[401, "token-missing"]];
    assert.equal(await session.report(1), "pending");
    assert.equal(session.refusal, "token-missing");
    assert.deepEqual([...asked(at, "/tokens"), ...asked(at, "/token-keys")], []);
    assert.equal(asked(at, "/reports")[0].headers.authorization, undefined);
    await rejects(device(at, { issuer: undefined }).fetchTokens("test"), "input-invalid");
  }));

test("tokens can be fetched ahead, once", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const ledger = new FileLedger(join(mkdtempSync(join(tmpdir(), "ledger-")), "ledger.json"));
    assert.equal(await device(at, { ledger }).fetchTokens("test"), 1);
    assert.equal(await device(at, { ledger }).fetchTokens("test"), 1);
    const session = await device(at, { ledger }).join("test");
    session.choose(CONTEXT);
    assert.equal(await session.report(1), "accepted");
    assert.equal(asked(at, "/tokens").length, 1);
    assert.ok(MINTS[0].signed(asked(at, "/reports")[0].headers.authorization));
  }));

test("a token for each report of a person who comes back", () =>
  serving(changed(LOCAL, { reports_per_person: 3, report_period_seconds: 86_400 }), async (at) => {
    issues(at);
    const free = { epsilon: Infinity, local_epsilon: Infinity };
    assert.equal(await device(at, { limits: free }).fetchTokens("test"), 1); // under local privacy one report of three times
    assert.equal(asked(at, "/tokens").length, 1);
  }));

test("a report comes with the same token until it is worn", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const ledger = new MemoryLedger();
    const session = await device(at, { ledger }).join("test");
    session.choose(CONTEXT);
    at.answers = [[503, "unavailable"], [401, "token-invalid"], [401, "token-wrong-audience"], SPENT];
    assert.equal(await session.report(1), "pending");
    for (let tries = 0; tries < 3; tries++) assert.deepEqual(await device(at, { ledger, issuer: undefined }).flush(), { test: "pending" });
    const headers = asked(at, "/reports").map((one) => one.headers.authorization);
    assert.equal(new Set(headers).size, 1);
    assert.equal(asked(at, "/tokens").length, 1);
    // The spent one is gone: the next call gets another, and the call after that sends it.
    at.answers = [[401, "token-missing"]];
    assert.deepEqual(await device(at, { ledger }).flush(), { test: "pending" });
    const place = at.requests.length;
    assert.deepEqual(await device(at, { ledger }).flush(), { test: "accepted" });
    assert.deepEqual(at.requests.slice(place).filter(({ url }) => /token/.test(url)), []);
    const all = asked(at, "/reports").map((one) => one.headers.authorization);
    assert.deepEqual(all.map((one) => one !== undefined), [true, true, true, true, false, true]);
    assert.ok(MINTS[0].signed(all[5]) && all[5] !== all[0]);
    assert.equal(new Set(at.bodies).size, 1);
    assert.deepEqual((await ledger.entry(`${at.url}/test`)).tokens, []);
  }));

/** A person whose report was sent once, by a token of the first mint, and heard no answer. @param {import("./support/served.js").Served} at @param {any} [more] */
async function unanswered(at, more) {
  issues(at);
  const ledger = new MemoryLedger();
  const session = await device(at, { ledger, ...more }).join("test");
  session.choose(CONTEXT);
  at.answers = [[503, ""]];
  assert.equal(await session.report(1), "pending");
  return ledger;
}

const spends = (/** @type {import("./support/served.js").Served} */ at) => asked(at, "/reports").map(({ headers }) => headers.authorization);

for (const reason of ["token-invalid", "token-wrong-audience"]) {
  test(`a report whose token names a lost key comes with another one (${reason})`, () =>
    serving(LOCAL, async (at) => {
      const ledger = await unanswered(at);
      issues(at, MINTS[1]);
      at.answers = [[401, reason], [409, "duplicate-report"]];
      assert.deepEqual(await device(at, { ledger }).flush(), { test: "pending" });
      assert.deepEqual(await device(at, { ledger }).flush(), { test: "accepted" });
      const [first, refused, last] = spends(at);
      assert.equal(first, refused);
      assert.ok(MINTS[0].signed(refused) && MINTS[1].signed(last));
      assert.equal(new Set(at.bodies).size, 1);
      const { tokens, waiting } = await ledger.entry(`${at.url}/test`);
      assert.deepEqual([tokens, waiting], [[], []]);
    }));

  test(`a token whose key the endpoint shows is kept (${reason})`, () =>
    serving(LOCAL, async (at) => {
      const ledger = await unanswered(at);
      at.answers = [[401, reason], [401, reason], [401, reason]];
      for (let tries = 0; tries < 3; tries++) assert.deepEqual(await device(at, { ledger }).flush(), { test: "pending" });
      assert.deepEqual(await device(at, { ledger }).flush(), { test: "accepted" });
      assert.deepEqual([new Set(spends(at)).size, asked(at, "/tokens").length], [1, 1]);
    }));
}

test("a report keeps its token until there is another one", () =>
  serving(LOCAL, async (at) => {
    const ledger = await unanswered(at);
    issues(at, MINTS[1]);
    at.sign = () => [403, '{"type": "urn:privateer:problem:tokens-exhausted"}'];
    at.answers = [[401, "token-invalid"]];
    /** @type {string[]} */
    const warned = [];
    const warn = (/** @type {string} */ text) => warned.push(text);
    assert.deepEqual(await device(at, { ledger, warn }).flush(), { test: "pending" });
    assert.match(warned.join(), /it has had its share/);
    assert.deepEqual(await device(at, { ledger }).flush(), { test: "accepted" });
    assert.equal(new Set(spends(at)).size, 1);
  }));

test("tokens left that name a lost key are gone with the report's", () =>
  serving(LOCAL, async (at) => {
    const ledger = await unanswered(at);
    const client = device(at, { ledger });
    const tokens = /** @type {import("../src/issuer.js").Issuer} */ (client.issuer).tokens(client, "test");
    await tokens.fill(`${at.url}/reports`, 2, 1);
    assert.equal(await tokens.tokenStore.count(`${at.url}/test`, `${at.url}/reports`), 2);
    issues(at, MINTS[1]);
    at.answers = [[401, "token-invalid"]];
    assert.deepEqual(await client.flush(), { test: "pending" });
    assert.equal(await tokens.tokenStore.count(`${at.url}/test`, `${at.url}/reports`), 1);
    assert.deepEqual(await client.flush(), { test: "accepted" });
    assert.ok(MINTS[1].signed(spends(at)[2]));
  }));

test("an issuer by another name", () =>
  serving(LOCAL, async (at) => {
    const ledger = await unanswered(at);
    at.keys = directory("other.example", [MINTS[0]]);
    at.answers = [[401, "token-wrong-audience"], [401, "token-wrong-audience"]];
    assert.deepEqual(await device(at, { ledger }).flush(), { test: "pending" });
    assert.equal(asked(at, "/tokens").length, 1);
    const issuer = at.url.replace("127.0.0.1", "localhost");
    at.keys = directory(serverName(issuer), [MINTS[0]]);
    assert.deepEqual(await device(at, { ledger, issuer }).flush(), { test: "pending" });
    assert.deepEqual(await device(at, { ledger, issuer }).flush(), { test: "accepted" });
    const [first, second, third, last] = spends(at);
    assert.ok(first === second && second === third && third !== last && MINTS[0].signed(last));
  }));

test("a lost answer is asked for again by the same bytes", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const ledger = new MemoryLedger();
    /** @type {string[]} */
    const requests = [];
    at.sign = (request) => (requests.push(request.toString("hex")), [503, '{"type": "urn:privateer:problem:unavailable"}']);
    await rejects(device(at, { ledger }).fetchTokens("test"), "unavailable");
    at.sign = (request) => (requests.push(request.toString("hex")), MINTS[0].sign(request));
    assert.equal(await device(at, { ledger }).fetchTokens("test"), 1);
    assert.deepEqual([requests.length, new Set(requests).size], [2, 1]);
  }));

test("two pages at once ask for one token", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const ledger = new MemoryLedger();
    const requests = new Set();
    at.sign = (request) => (requests.add(request.toString("hex")), MINTS[0].sign(request));
    await Promise.all(Array.from({ length: 5 }, () => device(at, { ledger }).fetchTokens("test")));
    assert.equal(requests.size, 1);
    assert.equal((await ledger.entry(`${at.url}/test`)).tokens?.length, 1);
    assert.equal(await device(at, { ledger }).fetchTokens("test"), 1);
  }));

test("two pages at once send a report with one token", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const ledger = new MemoryLedger();
    const session = await device(at, { ledger }).join("test");
    at.answers = [[503, ""]];
    session.choose(CONTEXT);
    await session.report(1);
    await Promise.all([1, 2, 3].map(() => device(at, { ledger }).flush()));
    assert.equal(new Set(asked(at, "/reports").map((one) => one.headers.authorization)).size, 1);
  }));

test("the ledger forgets what ties a token to its request, and the token once it is spent", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const folder = mkdtempSync(join(tmpdir(), "ledger-"));
    const ledger = new FileLedger(join(folder, "ledger.json"));
    const disk = () => readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8")).join("");
    let request = "";
    at.sign = (asked) => ((request = asked.toString("hex")), assert.ok(disk().includes(request)), MINTS[0].sign(asked));
    const session = await device(at, { ledger }).join("test");
    assert.ok(request && !disk().includes(request));
    const [{ token, inverse }] = (await ledger.entry(`${at.url}/test`)).tokens ?? [];
    assert.equal(inverse.length, 0);
    session.choose(CONTEXT);
    assert.equal(await session.report(1), "accepted");
    assert.ok(token.length && !disk().includes(hex(token)));
  }));

/** What keeps tokens away: a client is told, and its person takes part all the same. @param {import("./support/served.js").Served} at @param {any} more @param {string} type @param {RegExp} why */
async function without(at, more, type, why) {
  /** @type {string[]} */
  const warned = [];
  const client = () => device(at, { ...more, ledger: new MemoryLedger(), warn: (/** @type {string} */ text) => warned.push(text) });
  const session = await client().join("test");
  assert.ok(["a", "b", "c"].includes(session.choose(CONTEXT)));
  assert.equal(warned.length, 1);
  assert.match(warned[0], /^no upload token: /);
  assert.match(warned[0], why);
  await rejects(client().fetchTokens("test"), type);
}

test("keys that could tell a device from others are refused, and nothing is signed by them", () =>
  serving(SHUFFLED, (server) =>
    serving(SHUFFLED, async (at) => {
      const [mint, other, third] = MINTS;
      const issuer = serverName(at.url);
      at.sign = (request) => (assert.fail("a key of this device's own was used"), mint.sign(request));
      const more = { shuffler: at.url };
      const client = Object.assign(server, { keys: directory(issuer, [other]) });
      const refuses = (/** @type {RegExp} */ why) => without(client, { ...more, issuer: at.url }, "terms-refused", why);
      at.keys = directory(issuer, [mint]);
      await refuses(/does not show the newest token key that the server lists/);
      at.keys = directory(issuer, [mint, other, third]);
      await refuses(/more than 2 token keys/);
      at.keys = directory("elsewhere.example", [mint]);
      await refuses(/another issuer's/);
      at.keys = '{"issuer": 1}';
      await refuses(/no token keys of type 2/);
      at.keys = directory(issuer, [mint], { after: 1000 });
      await without(client, { ...more, issuer: at.url }, "unavailable", /shows no token keys/);
      at.keys = null;
      await without(client, { ...more, issuer: at.url }, "unavailable", /shows no token keys/);
      // Of two valid keys the endpoint shows this device the older one: the server lists another newest.
      client.keys = directory(issuer, [mint, other]);
      at.keys = directory(issuer, [mint]);
      await refuses(/does not show the newest token key that the server lists/);
      // The same keys at both: nothing keeps the token away, and it goes to the shuffler.
      at.keys = client.keys = directory(issuer, [mint, other]);
      at.sign = (request) => (assert.equal(request[2], other.id[31], "not the newest key"), other.sign(request));
      assert.equal(await device(client, { ...more, issuer: at.url }).fetchTokens("test"), 1);
      // A key that has not come to the server yet is nobody's.
      client.keys = directory(issuer, [mint]);
      at.sign = (request) => (assert.equal(request[2], mint.id[31], "a key that the server does not list"), mint.sign(request));
      assert.equal(await device(client, { ...more, issuer: at.url }).fetchTokens("test"), 1);
    }),
  ));

test("where the server lists no keys a device takes none from the endpoint", () =>
  serving(SHUFFLED, (server) =>
    serving(SHUFFLED, async (at) => {
      issues(at);
      at.sign = () => assert.fail("the endpoint's own choice of a key was used");
      await without(server, { shuffler: at.url, issuer: at.url }, "terms-refused", /the server lists no token keys/);
    }),
  ));

test("a token that was asked for by the newest key of then is still signed after a rotation", () =>
  serving(SHUFFLED, (server) =>
    serving(SHUFFLED, async (at) => {
      const [first, second] = MINTS;
      const issuer = serverName(at.url);
      const ledger = new MemoryLedger();
      at.keys = server.keys = directory(issuer, [first]);
      at.sign = () => [503, ""];
      await rejects(device(server, { ledger, shuffler: at.url, issuer: at.url }).fetchTokens("test"), "unavailable");
      at.keys = server.keys = directory(issuer, [first, second]);
      at.sign = (request) => (assert.equal(request[2], first.id[31]), first.sign(request));
      assert.equal(await device(server, { ledger, shuffler: at.url, issuer: at.url }).fetchTokens("test"), 1);
    }),
  ));

test("a signature by another key than everybody's makes no token", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    at.sign = (request) => MINTS[1].sign(Buffer.concat([request.subarray(0, 3), Buffer.alloc(1), request.subarray(4)]));
    await without(at, {}, "terms-refused", /another key/);
  }));

test("an issuer that gives none is told by its reason, and one that is away", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    for (const [reason, type] of [["attestation-refused", "attestation-refused"], ["tokens-exhausted", "tokens-exhausted"], ["too-large", "unavailable"]]) {
      at.sign = () => [403, JSON.stringify({ type: `urn:privateer:problem:${reason}`, detail: "x".repeat(500) })];
      await without(at, {}, type, type === "unavailable" ? /signed no token/ : /gives this device no token/);
    }
    at.sign = () => [200, "x".repeat(257)];
    await without(at, {}, "unavailable", /not what it was asked for/);
  }));

test("a request that the issuer refuses is drawn anew", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const ledger = new MemoryLedger();
    at.sign = () => [422, '{"type": "urn:privateer:problem:token-request-refused"}'];
    await rejects(device(at, { ledger }).fetchTokens("test"), "unavailable");
    assert.deepEqual((await ledger.entry(`${at.url}/test`)).tokens, []);
    issues(at);
    assert.equal(await device(at, { ledger }).fetchTokens("test"), 1);
  }));

test("the issuer hears what the backend signed, and nobody else does", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const attest = async (/** @type {string} */ name) => `${name}.attested`;
    const session = await device(at, { attest }).join("test");
    session.choose(CONTEXT);
    await session.report(1);
    const told = at.requests.filter(({ headers }) => headers["privateer-attestation"]);
    assert.deepEqual(told.map(({ url, headers }) => [url, headers["privateer-attestation"]]), [["/experiments/test/tokens", "test.attested"]]);
  }));

test("a backend that fails or never answers keeps nobody from choosing", () =>
  serving(LOCAL, async (at) => {
    issues(at);
    const why = /the application's backend signed nothing/;
    await without(at, { attest: () => Promise.reject(new Error("x1 is 0.3")) }, "unavailable", why);
    await without(at, { attest: () => new Promise(() => {}), timeout: 0.2 }, "unavailable", why);
  }));

test("a token whose key expires is replaced before it is spent", () =>
  serving(LOCAL, async (at) => {
    const clock = clockAt(1_000_000);
    const [first, second] = MINTS;
    const ledger = new MemoryLedger();
    at.keys = directory(serverName(at.url), [first], { after: 1_000_100 });
    at.sign = (request) => (request[2] === first.id[31] ? first : second).sign(request);
    assert.equal(await device(at, { ledger, clock }).fetchTokens("test"), 1);
    clock.at.time += 200;
    at.keys = directory(serverName(at.url), [second], { before: 1_000_150 });
    const session = await device(at, { ledger, clock }).join("test");
    session.choose(CONTEXT);
    assert.equal(await session.report(1), "accepted");
    assert.ok(second.signed(asked(at, "/reports")[0].headers.authorization));
  }));
