// @ts-check
/** A device pays before it sends, sends the same bytes until somebody decides, and never reports twice. */

import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Client, FileLedger, MemoryLedger, PrivateerError } from "../src/index.js";
import { entryOf } from "../src/log.js";
import { leafHash } from "../src/merkle.js";
import { readPublication } from "../src/publication.js";

const told = JSON.parse(readFileSync(new URL("../../../docs/wire/publications.json", import.meta.url), "utf8"));
const LOCAL = Buffer.from(told[0].publication, "hex");
const SHUFFLED = Buffer.from(told[1].publication, "hex");
const CONTEXT = { x1: 0.3, x2: 0.9 };

/** A server's key, and a log of one publication. */
class Notary {
  constructor(origin = "privateer/log/0011223344556677") {
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    this.origin = origin;
    this.private = privateKey;
    this.key = Buffer.from(publicKey.export({ format: "jwk" }).x ?? "", "base64url");
  }

  /** @param {Buffer} publication */
  signed(publication) {
    const digest = createHash("sha256").update(publication).digest();
    const text = Buffer.concat([Buffer.from("privateer/publication/1\0"), digest]);
    return `${this.key.toString("hex")}.${sign(null, text, this.private).toString("hex")}`;
  }

  /** @param {Buffer} publication */
  async proof(publication) {
    const { round, digest } = await readPublication(new Uint8Array(publication));
    const leaf = Buffer.from(await leafHash(entryOf(round.experiment, round.version, digest))).toString("base64");
    const text = `${this.origin}\n1\n${leaf}\n`;
    const named = Buffer.concat([Buffer.from(`${this.origin}\n`), Buffer.from([1]), this.key]);
    const id = createHash("sha256").update(named).digest().subarray(0, 4);
    const stamp = Buffer.concat([id, sign(null, Buffer.from(text), this.private)]).toString("base64");
    const head = `${text}\n— ${this.origin} ${stamp}\n`;
    return { head, index: 0, inclusion: "", start: 0, peaks: "", leaves: leaf, consistency: "" };
  }
}

/**
 * A server that publishes, keeps what it gets, and answers what it is told.
 * @param {Buffer} publication @param {(at: Served) => Promise<void>} use
 */
async function serving(publication, use) {
  /** @type {Served} */
  const at = { url: "", bodies: [], answers: [], asks: "published", notary: new Notary(), proof: (proof) => proof };
  const server = createServer(async (request, response) => {
    if (request.url?.startsWith("/log/proof")) {
      response.writeHead(200).end(JSON.stringify(at.proof(await at.notary.proof(publication))));
      return;
    }
    if (request.method === "GET") {
      const headers = { "content-type": "application/msgpack", "privateer-asks": at.asks };
      response.writeHead(200, { ...headers, "privateer-signed": at.notary.signed(publication) }).end(publication);
      return;
    }
    /** @type {Buffer[]} */
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk)).on("end", () => {
      at.bodies.push(Buffer.concat(chunks).toString("hex"));
      const [status, slug] = at.answers.shift() ?? [202, ""];
      response.writeHead(status).end(JSON.stringify(slug ? { type: `urn:privateer:problem:${slug}` } : { accepted: 1 }));
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null)));
  at.url = `http://127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}`;
  try {
    await use(at);
  } finally {
    server.close();
  }
}

/** @typedef {{url: string, bodies: string[], answers: [number, string][], asks: string, notary: Notary,
 *   proof: (proof: any) => any}} Served */

/** @param {Promise<any>} promise @param {string} type */
const rejects = (promise, type) =>
  assert.rejects(promise, (error) => error instanceof PrivateerError && error.type === type);

test("one report, of the same bytes until somebody decides", () =>
  serving(LOCAL, async (at) => {
    const path = join(mkdtempSync(join(tmpdir(), "ledger-")), "ledger.json");
    const client = new Client(at.url, { ledger: new FileLedger(path) });
    const session = await client.join("test");
    session.choose(CONTEXT);
    at.answers = [[503, "unavailable"], [409, "round-unknown"], [409, "duplicate-report"]];
    assert.equal(await session.report(1), "pending");
    await rejects(session.report(1), "already-reported");
    // The device starts again with what it has on disk.
    const again = new Client(at.url, { ledger: new FileLedger(path) });
    assert.equal((await again.join("test")).asked, false);
    assert.deepEqual(await again.resend(), ["pending"]);
    assert.deepEqual(await again.resend(), ["accepted"]);
    assert.deepEqual(await again.resend(), []);
    assert.equal(at.bodies.length, 3);
    assert.equal(new Set(at.bodies).size, 1);
  }));

test("nothing is sent that is not on the ledger", () =>
  serving(LOCAL, async (at) => {
    const ledger = new MemoryLedger();
    ledger.pay = () => {
      throw new Error("the disk is full");
    };
    const session = await new Client(at.url, { ledger }).join("test");
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
    assert.equal(await session.report(1), "not-asked");
    assert.deepEqual([at.bodies, ledger.paid], [[], {}]);
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
    assert.equal(first.head, null);
    await first.join("test");
    const again = () => new Client(at.url, { ledger: new FileLedger(path) });
    assert.equal(again().head, (await at.notary.proof(LOCAL)).head);
    await again().join("test");
    at.notary = new Notary("privateer/log/7766554433221100");
    await rejects(again().join("test"), "key-changed");
    const serverKeys = [at.notary.key.toString("hex")];
    await new Client(at.url, { ledger: new FileLedger(path), serverKeys }).join("test");
    await again().join("test");
    await rejects(new Client(at.url, { ledger: new MemoryLedger(), serverKeys: ["ab".repeat(32)] }).join("test"), "key-changed");
  }));

test("what is not signed or not in the log is not followed", () =>
  serving(LOCAL, async (at) => {
    const ledger = new MemoryLedger();
    const client = new Client(at.url, { ledger });
    at.proof = (proof) => ({ ...proof, index: 1 });
    await rejects(client.join("test"), "proof-invalid");
    at.proof = () => "no proof";
    await rejects(client.join("test"), "proof-invalid");
    at.proof = (proof) => ({ ...proof, head: proof.head.replace("\n1\n", "\n2\n") });
    await rejects(client.join("test"), "signature-invalid");
    at.notary.signed = () => "";
    await rejects(client.join("test"), "signature-invalid");
    assert.deepEqual(ledger.servers, {});
  }));

test("a ledger of an earlier version has its payments", () => {
  const path = join(mkdtempSync(join(tmpdir(), "ledger-")), "ledger.json");
  writeFileSync(path, JSON.stringify({ "http://s/test": { endpoint: "http://s/reports", body: "", answered: true } }));
  const ledger = new FileLedger(path);
  assert.ok(ledger.has("http://s/test"));
  ledger.know("http://s", { key: "ab", head: "" });
  assert.ok(new FileLedger(path).has("http://s/test"));
});
