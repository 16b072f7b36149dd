import assert from "node:assert/strict";
import { test } from "node:test";

import { cell, condition, confidence, figure, figureName, letter, many, moment, people, percent, shares, span, squeezed } from "../../server/privateer_server/dashboard/words.mjs";

test("figures have few digits, and none of a number that is not there", () => {
  assert.deepEqual([0.123456, 1234.5678, 0, 1e-9, 12345678, NaN, -0.5].map((one) => figure(one)),
    ["0.1235", "1,235", "0", "1e-9", "1.235e7", "–", "-0.5"]);
});

test("a share that is not all is never rounded to all, nor one that is something to nothing", () => {
  assert.deepEqual([0, 1, 0.5, 0.0001, 0.995, 0.9999].map((one) => percent(one)), ["0 %", "100 %", "50 %", "below 1 %", "above 99 %", "above 99 %"]);
});

test("confidence is rounded down", () => {
  assert.deepEqual([0.95, 0.99, 0.5, 0.999991666, 0.9996, 1].map(confidence), ["95 %", "99 %", "50 %", "99.999166 %", "99.96 %", "100 %"]);
});

test("times and counts are in words", () => {
  assert.equal(many(1, "person", "people"), "1 person");
  assert.equal(many(1200, "person", "people"), "1,200 people");
  assert.deepEqual([5e3, 6e5, 7.2e6, 3e8].map(span), ["5 seconds", "10 minutes", "2 hours", "3 days"]);
  assert.equal(moment(new Date(2026, 3, 5, 14, 7), new Date(2026, 3, 5, 20)), "14:07");
  assert.equal(moment(new Date(2026, 3, 6, 14, 7), new Date(2026, 3, 5, 20)), "6 April, 14:07");
});

test("bins say which people they hold", () => {
  const between = (feature, low, high, missing = false) => ({ kind: "between", feature, low, high, missing });
  const among = (feature, values, missing = false) => ({ kind: "among", feature, values, missing });
  assert.equal(people([]), "everybody");
  assert.equal(people([between("hours", 0, 20), among("country", ["NL"], true), among("premium", [false])]), "hours: 0 to 20; country: NL, missing; premium: no");
  assert.equal(condition(among("country", [], true)), "missing");
  assert.equal(condition(between("hours", 20, 40, true)), "20 to 40, or missing");
  assert.equal(people([among("rooms", [1, 5]), between("hours", 0, 20)]), "rooms: 1, 5; hours: 0 to 20");
  assert.equal(people([{ kind: "near", feature: "town", distance: 3 }]), "town: kind near, feature town, distance 3");
});

test("cells show any value", () => {
  assert.deepEqual([null, true, 1500, 0.25, [1, 2], { a_b: 1 }, "x", 7e18].map(cell), ["–", "yes", "1,500", "0.25", "1, 2", "a b 1", "x", "7e18"]);
});

test("shares are in percent, in words and in cells", () => {
  assert.equal(shares({ a: 0.25, b: 0.75 }), "a 25 %, b 75 %");
  assert.deepEqual([cell(0.125, "share"), cell(0.125, "reward"), cell(null, "share"), cell(1500, "count")], ["12.5 %", "0.125", "–", "1,500"]);
});

test("a long name keeps its end", () => {
  assert.equal(squeezed("short", 8), "short");
  assert.equal(squeezed("country is Netherlands · gentle", 13), "countr…gentle");
});

test("arms have letters", () => assert.deepEqual([0, 15, 26].map(letter), ["A", "P", "A1"]));

test("figures of a history have names in words", () =>
  assert.deepEqual(["samples", "stopped", "widest_interval", "constructor"].map(figureName), ["people", "best arm known", "widest interval", "constructor"]));
