// @ts-check
/**
 * Reports have the probabilities that are certified. Each test draws once and compares by chi-square; the words come from
 * a fixed seed, and its false-alarm rate is 1 in a million. A planted defect must be caught.
 */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { mix } from "../src/coins.js";
import { CellPairs, GaussianVectors, NamedSymbol, VectorSymbol } from "../src/mechanisms/index.js";
import { countLevels } from "../src/mechanisms/named-symbol.js";
import { wordToNormal, normalQuantile } from "../src/numerics.js";
import { drawBelow, secureNoise } from "../src/platform.js";
import { RandomizedResponse, SubsetResponse } from "../src/response.js";
import { RoundedNormal } from "../src/sampling/normal.js";

const FALSE_ALARM = 1e-6;
const MASK = (1n << 64n) - 1n;

/** Words of a fixed seed: SplitMix64. @param {bigint} seed @returns {import("../src/platform.js").Noise} */
function seeded(seed) {
  let state = seed;
  return (count) => Array.from({ length: count }, () => mix((state = (state + 0x9e3779b97f4a7c15n) & MASK)));
}

/** The most that chi-square is but for false alarms (Wilson and Hilferty 1931). @param {number} freedom */
const most = (freedom) => freedom * (1 - 2 / (9 * freedom) + normalQuantile(1 - FALSE_ALARM) * Math.sqrt(2 / (9 * freedom))) ** 3;

/** @param {number[]} counts @param {number[]} shares of a distribution */
function differs(counts, shares) {
  const all = counts.reduce((sum, one) => sum + one);
  const chi = counts.reduce((sum, one, i) => sum + (one - all * shares[i]) ** 2 / (all * shares[i]), 0);
  return chi > most(counts.length - 1);
}

/** @param {number} draws @param {number} kinds @param {() => number} draw */
function counted(draws, kinds, draw) {
  const counts = new Array(kinds).fill(0);
  for (let i = 0; i < draws; i++) counts[draw()] += 1;
  return counts;
}

/** Shares of randomized response, by its threshold. @param {RandomizedResponse | SubsetResponse} response @param {number[]} own */
function sharesOf(response, own) {
  const [kept, symbols] = [Number(response.threshold) / 2 ** 64, Number(response.symbols)];
  return Array.from({ length: symbols }, (_, symbol) => (1 - kept) / symbols + (own.includes(symbol) ? kept / own.length : 0));
}

test("randomized response keeps the truth as often as its threshold says", () => {
  const response = new RandomizedResponse(1.5, 6);
  const noise = seeded(1n);
  const shares = sharesOf(response, [2]);
  const counts = counted(60_000, 6, () => response.randomize(2, noise(2)));
  assert.ok(!differs(counts, shares), String(counts));
  // e^1.5 is the ratio of the most to the least likely, and no more.
  assert.ok(Math.abs(shares[2] / shares[0] - Math.exp(1.5)) < 1e-12);
  response.threshold = (response.threshold * 110n) / 100n;
  assert.ok(differs(counted(60_000, 6, () => response.randomize(2, noise(2))), shares), "the planted defect is not caught");
});

test("subset selection sends each own symbol alike", () => {
  const response = new SubsetResponse(1, 8, 3);
  const noise = seeded(2n);
  const shares = sharesOf(response, [1, 4, 6]);
  const counts = counted(60_000, 8, () => response.randomize([1, 4, 6], noise(3)));
  assert.ok(!differs(counts, shares), String(counts));
  const skewed = counted(60_000, 8, () => response.randomize([1, 1, 4, 6], noise(3)));
  assert.ok(differs(skewed, shares), "the planted defect is not caught");
});

test("normal noise is normal", () => {
  const normal = new RoundedNormal(5000);
  const edges = Array.from({ length: 31 }, (_, i) => 5000 * normalQuantile((i + 1) / 32));
  const bin = (/** @type {number} */ value) => edges.filter((edge) => value >= edge).length;
  const shares = new Array(32).fill(1 / 32);
  const noise = seeded(3n);
  const counts = counted(60_000, 32, () => bin(normal.draw(noise)));
  assert.ok(!differs(counts, shares), String(counts));
  const narrow = new RoundedNormal(4800);
  assert.ok(differs(counted(60_000, 32, () => bin(narrow.draw(noise))), shares), "the planted defect is not caught");
});

test("the operating system's words, and uniform numbers of them", () => {
  const sixteen = new Array(16).fill(1 / 16);
  assert.ok(!differs(counted(40_000, 16, () => Number(secureNoise(1)[0] >> 60n)), sixteen));
  assert.ok(!differs(counted(40_000, 16, () => drawBelow(16)), sixteen));
  assert.ok(differs(counted(40_000, 16, () => Number((secureNoise(1)[0] >> 60n) | (secureNoise(1)[0] >> 61n))), sixteen));
  assert.equal(new Set(secureNoise(20_000)).size, 20_000);
});

test("rounding to the grid moves nothing on average, and records are what they say", () => {
  const ball = { norm: "l2", bound: 1, coordinates: 2 };
  const vectors = new GaussianVectors({ type: "gaussian-vectors", ball, standard_deviation: 4000 });
  const noise = seeded(4n);
  const third = 1 / 3 / 16_384;
  const ups = counted(60_000, 2, () => vectors.ball.onGrid([third, 0], noise)[0]);
  assert.ok(!differs(ups, [2 / 3, 1 / 3]), String(ups));
  assert.deepEqual(vectors.ball.onGrid([3, 4], noise).map((one) => Math.abs(one - 16_384 * 0.7) < 2_000), [true, true]);
  const layout = { seed: 1, thresholds: ["<u4", [4, 0], new Uint8Array(0)] };
  const pairs = new CellPairs({ type: "cell-pairs", layout, scale: 1 });
  const sent = (/** @type {number} */ value) => [...pairs.randomize({ slot: 0, key: 3, value, vector: [] }, noise)];
  assert.deepEqual([sent(0), sent(1)], [[3, 0, 0, 0, 0, 0], [3, 0, 0, 0, 255, 255]]);
  const steps = counted(60_000, 2, () => sent(1 / 3 / 65_535)[4]);
  assert.ok(!differs(steps, [2 / 3, 1 / 3]), `${steps}: to the nearest, all would be 0`);
});

test("messages of a report have coins of their own", () => {
  const ball = { norm: "l2", bound: 1, coordinates: 2 };
  const told = { type: "vector-symbol", ball, epsilon: 2, directions: 2, chosen: 1, seed: 5, classes: 1, repeats: 4 };
  const symbol = new VectorSymbol(told);
  assert.deepEqual([symbol.messages, symbol.localEpsilon, symbol.reportSize], [4, 8, 6]);
  const contribution = { slot: 7, key: -1, value: 0, vector: [0.5, 0.5] };
  /** Coins, or steps between them, that came before. Of 6,000 random words .004 pairs are equal on average, so a false alarm is
   * rarer than 1 in a million. @param {import("../src/platform.js").Noise} noise */
  const repeated = (noise) => {
    const rows = Array.from({ length: 2000 }, () => Buffer.from(symbol.randomize(contribution, noise)));
    const slots = rows.map((row) => [0, 1, 2, 3].map((place) => row.readUInt32LE(6 * place)));
    assert.ok(rows.every((row) => row.length === 24) && slots.every(([first]) => first === 7));
    const fresh = slots.flatMap((row) => row.slice(1));
    const steps = slots.flatMap((row) => row.slice(1).map((one, i) => (one - row[i] + 2 ** 32) % 2 ** 32));
    return fresh.length - new Set(fresh).size + steps.length - new Set(steps).size;
  };
  assert.ok(repeated(secureNoise) < 3);
  const following = (/** @type {number} */ count) => (count === 3 ? [8n, 9n, 10n] : secureNoise(count));
  assert.ok(repeated(following) > 2000, "the planted defect is not caught");
});

test("directions are of length 1 and of no preference", () => {
  const ball = { norm: "l2", bound: 1, coordinates: 3 };
  const told = { type: "vector-symbol", ball, epsilon: 2, directions: 8, chosen: 2, seed: 5, classes: 1 };
  const symbol = new VectorSymbol(told);
  const signs = [0, 0];
  for (let slot = 0; slot < 5000; slot++) {
    const direction = symbol.direction(slot, slot % 8);
    assert.ok(Math.abs(Math.hypot(...direction) - 1) < 1e-12);
    signs[direction[0] > 0 ? 1 : 0] += 1;
  }
  assert.ok(!differs(signs, [0.5, 0.5]), String(signs));
});

test("nothing here draws other random numbers, and a browser needs no part of Node", () => {
  const folder = new URL("../src/", import.meta.url);
  const sources = readdirSync(folder, { recursive: true }).map(String).filter((name) => name.endsWith(".js"));
  assert.ok(sources.length > 25);
  for (const name of sources) {
    const text = readFileSync(new URL(name.replaceAll("\\", "/"), folder), "utf8");
    assert.doesNotMatch(text, /Math\.random/, name);
    if (!/^(node|ledgers\/(file|people|database[a-z-]*))\.js$/.test(name.replaceAll("\\", "/"))) assert.doesNotMatch(text, /\bBuffer\b|["']node:|\bprocess\./, name);
  }
});

test("every word has a normal number", () => {
  const words = [0n, 1n, (1n << 63n) - 1n, 1n << 63n, (1n << 64n) - 2048n, (1n << 64n) - 1n];
  const numbers = words.map(wordToNormal);
  assert.ok(numbers.every((one, place) => Number.isFinite(one) && (place === 0 || one >= numbers[place - 1])));
});

test("numbers have as many levels as a local epsilon and their mean say", () => {
  const cases = /** @type {[number, number | null, number, number][]} */ ([
    [1, 0.5, 0.5, 2], [1, 0.5, 1, 3], [1, 0.5, 3, 5], [1, 0.5, 4, 7], [1, 0.5, 5.5, 9],
    [4, 0.5, 4, 5], [1, 0.01, 3, 2], [1, 0.99, 4, 3], [1, null, 8, 2], [8192, 0.5, 16, 3],
  ]);
  for (const [keys, expected, epsilon, levels] of cases) assert.equal(countLevels({ keys, expected, beside: false }, epsilon), levels);
});

test("a value is rounded to a level next to it so that its mean stays", () => {
  const layout = { seed: 5n, thresholds: ["<u4", [1, 0], new Uint8Array(0)] };
  const symbol = new NamedSymbol({ type: "named-symbol", layout, epsilon: 30, buckets: 1, levels: 5 });
  const noise = seeded(6n);
  const level = () => new DataView(symbol.randomize({ slot: 7, key: 0, value: 0.6, vector: [] }, noise).buffer).getUint16(4, true);
  // .6 is at 2.4 of 4 steps.
  const near = counted(60_000, 5, level).slice(2, 4);
  assert.equal(near[0] + near[1], 60_000);
  assert.ok(!differs(near, [0.6, 0.4]), String(near));
  assert.ok(differs(near, [0.61, 0.39]), "the planted defect is not caught");
});
