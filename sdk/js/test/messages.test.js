// @ts-check
/** A report of several messages: each is sealed by itself, and all of them are paid for and sent as one. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, MemoryLedger } from "../src/index.js";
import { concatBytes } from "../src/bytes.js";
import { decode, encode } from "../src/msgpack.js";
import { Participation } from "../src/participation.js";
import { fillRandom } from "../src/platform.js";
import { seal } from "../src/sealing.js";
import { LIMITS } from "../src/verification.js";
import { rejects, serving } from "./support/served.js";
import { vectors } from "./support/vectors.js";

const told = vectors("decisions");
const SEVERAL = new Uint8Array(Buffer.from(told.find((/** @type {any} */ one) => one.name.includes("several messages")).publication, "base64"));
const ALLOWED = { local_epsilon: 16 };
const CONTEXT = { x1: 0.3, x2: 0.9 };

/** The sealed messages of a body, in hexadecimal. @param {Uint8Array} body @param {number} size */
function pieces(body, size) {
  const sealed = Buffer.from(decode(new Uint8Array(body))[1]);
  return Array.from({ length: sealed.length / size }, (_, i) => sealed.subarray(i * size, (i + 1) * size).toString("hex"));
}

test("each message is sealed by itself, in order, with an id of its own", async () => {
  const followed = await Participation.checked(SEVERAL, "test", { ...LIMITS, ...ALLOWED });
  const { round, header } = followed;
  assert.equal(round.messages, 5);
  const choice = { ...followed.choose(CONTEXT), values: [0.5] };
  const messages = followed.message(choice);
  assert.equal(messages.length, 5 * 6);
  const keys = () => crypto.subtle.generateKey({ name: "X25519" }, true, ["deriveBits"]);
  const ephemerals = /** @type {CryptoKeyPair[]} */ (await Promise.all(Array.from({ length: 5 }, keys)));
  const ids = ephemerals.map(() => fillRandom(new Uint8Array(16)));
  const info = encode(["privateer/report/1", round.model, header]);
  const alone = ids.map((id, i) => seal(concatBytes(id, messages.slice(6 * i, 6 * i + 6)), round.publicKey, info, ephemerals[i]));
  const wanted = (await Promise.all(alone)).map((one) => Buffer.from(one).toString("hex"));
  assert.deepEqual(pieces(await followed.body(messages, ids, ephemerals), round.sealedSize), wanted);
  // Equal messages differ when they are sealed, since ids and keys are fresh for each.
  const same = pieces(await followed.body(concatBytes(...Array(5).fill(messages.slice(0, 6)))), round.sealedSize);
  assert.equal(new Set(same.map((one) => one.slice(0, 64))).size, 5);
  assert.equal(new Set(same).size, 5);
});

test("the same bytes go out until somebody decides, and the ledger has what all messages cost", () =>
  serving(SEVERAL, async (at) => {
    const ledger = new MemoryLedger();
    const client = new Client(at.url, { ledger, shuffler: at.url, retryTimeout: 0, limits: ALLOWED });
    const session = await client.join("test");
    session.choose(CONTEXT);
    at.answers = [[503, "unavailable"], [409, "duplicate-report"]];
    assert.equal(await session.report(1), "pending");
    assert.deepEqual(await client.flush(), { test: "accepted" });
    assert.equal(at.bodies.length, 2);
    assert.equal(new Set(at.bodies).size, 1);
    assert.equal(pieces(Buffer.from(at.bodies[0], "hex"), 70).length, 5);
    const { payment } = await ledger.entry(`${at.url}/test`);
    const { mechanism } = (await client.join("test")).participation;
    assert.ok(mechanism && "epsilon" in mechanism);
    assert.equal(payment?.localEpsilon, 5 * mechanism.epsilon);
  }));

test("a device that allows what one message costs sends none", () =>
  serving(SEVERAL, async (at) => {
    await rejects(new Client(at.url, { ledger: new MemoryLedger(), shuffler: at.url, limits: { local_epsilon: 4 } }).join("test"), "terms-refused");
    assert.deepEqual(at.bodies, []);
  }));

test("a spec that allows no such number of messages is refused", async () => {
  const [round, spec, policy] = decode(SEVERAL);
  /** The same publication by another spec. @param {Record<string, any>} changes by section */
  const by = (changes) => {
    const table = JSON.parse(Buffer.from(spec).toString());
    for (const [section, some] of Object.entries(changes)) Object.assign(table[section], some);
    const body = encode([round, concatBytes([...Buffer.from(JSON.stringify(table))]), policy]);
    return Participation.checked(body, "test", { ...LIMITS, ...ALLOWED });
  };
  assert.equal((await by({ algorithm: { messages_per_report: 5 } })).mechanism?.messages, 5);
  for (const messages of [undefined, null, 0, 1, 4, 17, 5.5, "8", [8]]) await rejects(by({ algorithm: { messages_per_report: messages } }), "malformed-report");
  await rejects(by({ experiment: { reports_per_person: 2 } }), "malformed-report");
  await rejects(by({ privacy: { arm_visibility: "hidden" } }), "malformed-report");
  await rejects(by({ algorithm: { report_statistic: "joint" } }), "malformed-report");
});
