// @ts-check
/** What docs/behaviour.json says of a device: the client in Python does the same (tests/unit/client/test_behaviour.py). */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";

import { TrialPolicy } from "../src/algorithms/trial.js";
import { PrivateerError } from "../src/errors.js";
import { makeFeatures, scaleReward, listUnfit } from "../src/features.js";
import { toPlainValues, unfitOutcome } from "../src/inputs.js";
import { FeatureSums } from "../src/mechanisms/index.js";
import { decode } from "../src/msgpack.js";
import { Client, MemoryLedger } from "../src/node.js";
import { ALLOWED, NEXT, OUTCOMES, nextState } from "../src/states.js";
import { changed, clockAt, serving } from "./support/served.js";
import { listening } from "./support/silent.js";
import { vectors } from "./support/vectors.js";

/** @typedef {Record<string, any>} Case */

/** @type {Record<string, Case[]>} */
const BEHAVIOUR = JSON.parse(readFileSync(new URL("../../../docs/behaviour.json", import.meta.url), "utf8"));
const LOCAL = Buffer.from(vectors("publications")[0].publication, "hex");
const NEAR = { x1: 0.3, x2: 0.9 };
const FAR = { x1: 0.9, x2: 0.1 };
const NOW = 1.8e9;
const PEOPLE = 6;
const quiet = () => {};

/** Kinds of values; a language leaves out those that it does not have. @type {Record<string, (value: any) => any>} */
const KINDS = {
  number: (value) => value,
  whole: (value) => BigInt(value),
  text: (value) => value,
  yes: (value) => value,
  nan: () => NaN,
  null: () => null,
  infinite: (sign) => sign * Infinity,
  list: (values) => values.map(valueOf),
  object: (values) => Object.fromEntries(Object.entries(values).map(([name, one]) => [name, valueOf(one)])),
};

/** @param {any} tagged @returns {any} */
function valueOf(tagged) {
  const [[kind, value]] = Object.entries(tagged);
  return KINDS[kind](value);
}

/** What a policy gets of a value, and whether the developer is told; null: this language has no such values.
 * @param {Case} one @returns {[number[], boolean] | null} */
function used({ feature, reward, guardrails = [], value }) {
  if (!(Object.keys(value)[0] in KINDS)) return null;
  const given = toPlainValues(valueOf(value));
  if (feature) {
    const known = makeFeatures({ x: feature });
    const whole = toPlainValues({ x: valueOf(value) });
    return [/** @type {any} */ (known.get("x")).encode(whole.x), listUnfit(known, whole).length > 0];
  }
  const spec = /** @type {any} */ ({ reward, guardrails });
  const told = unfitOutcome(given, spec).length > 0;
  if (!guardrails.length) return [[scaleReward(reward, given)], told];
  return [TrialPolicy.prototype.read.call(/** @type {any} */ ({ guardrails }), given, spec), told];
}

/** Which arms are shown, as letters by when each came first, and what becomes of reports. @param {Case} one */
async function sessions({ asks, steps }) {
  /** @type {string[]} */
  const arms = [];
  /** @type {string[]} */
  const outcomes = [];
  await serving(LOCAL, async (at) => {
    at.asks = asks ? "published" : "nobody";
    const [ledger, clock] = [new MemoryLedger(), clockAt(NOW)];
    /** @type {Map<number, import("../src/session.js").Session>} */
    const joined = new Map();
    for (const [what, number, how] of steps) {
      const session = /** @type {import("../src/session.js").Session} */ (joined.get(number));
      // What a page has chosen is kept before another page comes.
      if (what === "join") await Promise.all([...joined.values()].map((one) => one.keeping));
      if (what === "join") joined.set(number, await new Client(at.url, { ledger, clock, warn: quiet }).join("test"));
      if (what === "choose") arms.push(session.choose(how === "near" ? NEAR : FAR));
      if (what === "report") outcomes.push(await session.report(1));
      if (what === "publish") [at.publication, clock.at.time] = [changed(LOCAL, {}, number), clock.at.time + 60];
    }
  });
  return [arms.map((arm) => "ABCDEFG"[[...new Set(arms)].indexOf(arm)]), outcomes];
}

/** What becomes of a choice while a clock is set. @param {Case} one */
async function clocks({ window, chosen, steps }) {
  /** @type {(string | null)[]} */
  const outcomes = [];
  await serving(changed(LOCAL, { conversion_window_seconds: window }), async (at) => {
    const [ledger, clock] = [new MemoryLedger(), clockAt(NOW + chosen)];
    const client = () => new Client(at.url, { ledger, clock, retryTimeout: 0, warn: quiet });
    const session = await client().join("test");
    session.choose(NEAR);
    await session.keeping;
    for (const [time, what] of steps) {
      clock.at.time = NOW + time;
      if (what === "away" || what === "back") at.away = what === "away";
      const told = what === "report" ? await session.report(1) : null;
      outcomes.push(what === "flush" ? ((await client().flush()).test ?? null) : told);
    }
  });
  return outcomes;
}

/** @typedef {import("../src/states.js").ChoiceState} ChoiceState */

/** What is next, and what may be done, where that is not as is written. @param {Case} one */
function isInTable({ state, event, next, allowed, outcome }) {
  const own = /** @type {ChoiceState} */ (state);
  if (event) return NEXT[own][/** @type {import("../src/states.js").ChoiceEvent} */ (event)] === next;
  return isSame([...ALLOWED[own]].sort(), allowed) && (OUTCOMES[own] ?? null) === outcome;
}

/** The state of a choice after each step, and what was told of its report: what is written, or what is there instead. @param {Case} one */
async function choices({ window, asks = true, steps }) {
  /** @type {Case[]} */
  const found = [];
  let publication = changed(LOCAL, { conversion_window_seconds: window });
  await serving(publication, async (at) => {
    at.asks = asks ? "published" : "nobody";
    const [ledger, clock] = [new MemoryLedger(), clockAt(NOW)];
    const client = () => new Client(at.url, { ledger, clock, retryTimeout: 0, warn: quiet });
    let session = /** @type {import("../src/session.js").Session} */ (/** @type {unknown} */ (null));
    /** @type {Record<string, (step: Case) => any>} */
    const ways = {
      join: async () => void (session = await client().join("test")),
      choose: () => void session.choose(NEAR),
      fresh: () => void session.choose(NEAR, { fresh: true }),
      report: () => session.report(1),
      forget: () => session.forget(),
      flush: async () => (await client().flush()).test,
      pass: ({ seconds }) => void (clock.at.time += seconds),
      publish: ({ version }) => {
        at.publication = publication = changed(publication, {}, version);
        clock.at.time += 60;
      },
      pause: () => void (at.asks = "nobody"),
      asks: () => void (at.asks = "published"),
      away: () => void (at.away = true),
      back: () => void (at.away = false),
    };
    for (const { state, outcome, ...step } of steps) {
      const told = await ways[step.do](step);
      await session?.keeping;
      found.push({ ...step, ...(state && { state: session.state }), ...((outcome || told) && { outcome: told ?? null }) });
    }
  });
  return found;
}

/** The address by which the ledger knows a server; null if the client refuses it. @param {Case} one */
function identify({ address }) {
  try {
    return new Client(address).server;
  } catch (error) {
    assert.ok(error instanceof PrivateerError && error.type === "input-invalid");
    return null;
  }
}

/** Whether a client accepts a mechanism of published terms. @param {Case} one */
function accepts({ mechanism, body }) {
  assert.equal(mechanism, FeatureSums.TYPE);
  try {
    return new FeatureSums(decode(new Uint8Array(Buffer.from(body, "hex")))).arms > 0;
  } catch (error) {
    assert.ok(error instanceof PrivateerError);
    return false;
  }
}

/** @param {any} one @param {any} other */
const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Which cases go otherwise. @param {Record<string, Case[]>} behaviour @returns {Promise<[string, number][]>} */
async function wrong(behaviour) {
  /** @type {[string, number][]} */
  const found = [];
  for (const [number, one] of behaviour.values.entries()) {
    const told = used(one);
    if (told && !isSame(told, [one.used, one.warned])) found.push(["values", number]);
  }
  for (const [number, one] of behaviour.sessions.entries()) {
    const told = [];
    for (let person = 0; person < PEOPLE; person++) told.push(await sessions(one));
    if (told.some((each) => !isSame(each, [one.arms, one.outcomes]))) found.push(["sessions", number]);
  }
  for (const [number, one] of behaviour.addresses.entries()) if (identify(one) !== one.identity) found.push(["addresses", number]);
  for (const [number, one] of behaviour.mechanisms.entries()) if (accepts(one) !== one.accepted) found.push(["mechanisms", number]);
  for (const [number, one] of behaviour.clocks.entries()) {
    if (!isSame(await clocks(one), one.steps.map((/** @type {any[]} */ step) => step[2]))) found.push(["clocks", number]);
  }
  for (const kind of ["states", "actions"]) {
    for (const [number, one] of behaviour[kind].entries()) if (!isInTable(one)) found.push([kind, number]);
  }
  for (const [number, one] of behaviour.choices.entries()) {
    const there = await choices(one);
    if (!there.every((step, i) => isDeepStrictEqual(step, one.steps[i]))) found.push(["choices", number]);
  }
  return found;
}

test("the table has no other row", () => {
  const rows = Object.entries(NEXT).flatMap(([state, next]) => Object.keys(next).map((event) => `${state} ${event}`));
  assert.deepEqual(rows, BEHAVIOUR.states.map(({ state, event }) => `${state} ${event}`));
  assert.deepEqual(Object.keys(ALLOWED), BEHAVIOUR.actions.map(({ state }) => state));
  assert.throws(() => nextState("closed", "taken"), TypeError);
});

test("a device behaves as is written", async () => {
  assert.deepEqual(await wrong(BEHAVIOUR), []);
  assert.ok(BEHAVIOUR.values.filter((one) => used(one) !== null).length > 60);
});

for (const [kind, number, change] of /** @type {[string, number, Case][]} */ ([
  ["values", 6, { warned: false }],
  ["values", 0, { used: [0.26] }],
  ["sessions", 2, { outcomes: ["accepted", "accepted"] }],
  ["sessions", 0, { arms: ["A", "B"] }],
  ["addresses", 3, { identity: "https://learn.example" }],
  ["addresses", 16, { identity: "https://learn.example." }],
  ["mechanisms", 0, { accepted: false }],
  ["mechanisms", 3, { accepted: true }],
  ["clocks", 2, { chosen: 0 }],
  ["states", 3, { next: "closed" }],
  ["actions", 3, { allowed: ["report", "stay"] }],
  ["actions", 4, { outcome: "not-requested" }],
  ["choices", 0, { steps: BEHAVIOUR.choices[0].steps.map((/** @type {Case} */ one, /** @type {number} */ i) => (i === 3 ? { ...one, state: "due" } : one)) }],
  ["choices", 6, { steps: [...BEHAVIOUR.choices[6].steps.slice(0, -1), { do: "flush", outcome: "pending" }] }],
])) {
  test(`a difference shows: ${kind} ${number}`, async () => {
    const none = { values: [], sessions: [], addresses: [], mechanisms: [], clocks: [], states: [], actions: [], choices: [] };
    assert.deepEqual(await wrong({ ...none, [kind]: [{ ...BEHAVIOUR[kind][number], ...change }] }), [[kind, 0]]);
  });
}

for (const { service, error, words } of BEHAVIOUR.connections) {
  test(`errors have the words of every client: ${service}`, () =>
    listening(service, async (url) => {
      const joining = new Client(url, { ledger: new MemoryLedger(), timeout: 0.5 }).join("test");
      await assert.rejects(joining, { type: error, message: words.replace("{url}", url).replace("{seconds}", "0.5") });
    }));
}

test("what is told is told once a session and name", () =>
  serving(LOCAL, async (at) => {
    /** @type {string[]} */
    const warnings = [];
    const client = new Client(at.url, { ledger: new MemoryLedger(), warn: (message) => warnings.push(message.split(":")[0]) });
    for (let time = 0; time < 2; time++) {
      const session = await client.join("test");
      for (let again = 0; again < 3; again++) session.choose(/** @type {any} */ ({ x1: "secret", x2: null }), { fresh: true });
      if (time) assert.deepEqual([await session.report(/** @type {any} */ ("secret")), await session.report(/** @type {any} */ ("secret"))], ["accepted", "already-reported"]);
    }
    assert.deepEqual(warnings, ["x1", "x2", "x1", "x2", "reward"]);
  }));
