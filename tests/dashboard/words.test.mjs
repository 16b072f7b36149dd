import assert from "node:assert/strict";
import { test } from "node:test";

import { formatCell, describeCondition, formatConfidence, formatFigure, figureName, armLetter, formatCount, formatTime, describePeople, formatPercent, describeShares, formatDuration, shortenMiddle } from "../../server/privateer_server/dashboard/words.mjs";

test("figures have few digits, and none of a number that is not there", () => {
  assert.deepEqual([0.123456, 1234.5678, 0, 1e-9, 12345678, NaN, -0.5].map((one) => formatFigure(one)),
    ["0.1235", "1,235", "0", "1e-9", "1.235e7", "–", "-0.5"]);
});

test("a share that is not all is never rounded to all, nor one that is something to nothing", () => {
  assert.deepEqual([0, 1, 0.5, 0.0001, 0.995, 0.9999].map((one) => formatPercent(one)), ["0 %", "100 %", "50 %", "below 1 %", "above 99 %", "above 99 %"]);
});

test("confidence is rounded down", () => {
  assert.deepEqual([0.95, 0.99, 0.5, 0.999991666, 0.9996, 1].map(formatConfidence), ["95 %", "99 %", "50 %", "99.999166 %", "99.96 %", "100 %"]);
});

test("times and counts are in words", () => {
  assert.equal(formatCount(1, "person", "people"), "1 person");
  assert.equal(formatCount(1200, "person", "people"), "1,200 people");
  assert.deepEqual([5e3, 6e5, 7.2e6, 3e8].map(formatDuration), ["5 seconds", "10 minutes", "2 hours", "3 days"]);
  assert.equal(formatTime(new Date(2026, 3, 5, 14, 7), new Date(2026, 3, 5, 20)), "14:07");
  assert.equal(formatTime(new Date(2026, 3, 6, 14, 7), new Date(2026, 3, 5, 20)), "6 April, 14:07");
});

test("bins say which people they hold", () => {
  const between = (feature, low, high, missing = false) => ({ kind: "between", feature, low, high, missing });
  const among = (feature, values, missing = false) => ({ kind: "among", feature, values, missing });
  assert.equal(describePeople([]), "everybody");
  assert.equal(describePeople([between("hours", 0, 20), among("country", ["NL"], true), among("premium", [false])]), "hours: 0 to 20; country: NL, missing; premium: no");
  assert.equal(describeCondition(among("country", [], true)), "missing");
  assert.equal(describeCondition(between("hours", 20, 40, true)), "20 to 40, or missing");
  assert.equal(describePeople([among("rooms", [1, 5]), between("hours", 0, 20)]), "rooms: 1, 5; hours: 0 to 20");
  assert.equal(describePeople([{ kind: "near", feature: "town", distance: 3 }]), "town: kind near, feature town, distance 3");
});

test("cells show any value", () => {
  assert.deepEqual([null, true, 1500, 0.25, [1, 2], { a_b: 1 }, "x", 7e18].map(formatCell), ["–", "yes", "1,500", "0.25", "1, 2", "a b 1", "x", "7e18"]);
});

test("shares are in percent, in words and in cells", () => {
  assert.equal(describeShares({ a: 0.25, b: 0.75 }), "a 25 %, b 75 %");
  assert.deepEqual([formatCell(0.125, "share"), formatCell(0.125, "reward"), formatCell(null, "share"), formatCell(1500, "count")], ["12.5 %", "0.125", "–", "1,500"]);
});

test("a long name keeps its end", () => {
  assert.equal(shortenMiddle("short", 8), "short");
  assert.equal(shortenMiddle("country is Netherlands · gentle", 13), "countr…gentle");
});

test("arms have letters", () => assert.deepEqual([0, 15, 26].map(armLetter), ["A", "P", "A1"]));

test("figures of a history have names in words", () =>
  assert.deepEqual(["samples", "stopped", "widest_interval", "constructor"].map(figureName), ["people", "best arm known", "widest interval", "constructor"]));
