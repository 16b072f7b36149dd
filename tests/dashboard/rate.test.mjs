import assert from "node:assert/strict";
import { test } from "node:test";

import { expected, remembered } from "../../server/privateer_server/dashboard/rate.mjs";
import { countInWords, endInWords, roundInWords, sinceInWords } from "../../server/privateer_server/dashboard/status.mjs";

const MINUTE = 60_000;

test("the end follows from the rate that was seen", () => {
  const points = remembered(remembered([], 0, 100), 10 * MINUTE, 300);
  const found = expected(points, 1300);
  assert.equal(found.end, 60 * MINUTE);
  assert.equal(found.came, 200);
});

test("nothing is said without reports, or of less than a minute", () => {
  assert.equal(expected([], 10), null);
  assert.equal(expected([{ at: 0, accepted: 1 }, { at: MINUTE / 2, accepted: 5 }], 10), null);
  assert.equal(expected([{ at: 0, accepted: 5 }, { at: 10 * MINUTE, accepted: 5 }], 10), null);
});

test("counts that went down begin anew, and old ones are forgotten", () => {
  assert.deepEqual(remembered([{ at: 0, accepted: 50 }], 5, 3), [{ at: 5, accepted: 3 }]);
  assert.deepEqual(remembered([{ at: 0, accepted: 1 }], 48 * 60 * MINUTE, 9), [{ at: 48 * 60 * MINUTE, accepted: 9 }]);
});

test("few counts are kept, however often the page asks", () => {
  let points = [];
  for (let n = 0; n < 20_000; n++) points = remembered(points, n * 4000, n);
  assert.ok(points.length <= 150, String(points.length));
  assert.equal(expected(points, 40_000).rate, 1 / 4000);
});

test("the end is said in words, and not where there is none", () => {
  const facts = { status: "open", accepted: 10, planned: 20 }, now = Date.now();
  assert.match(endInWords(facts, { rate: 1, since: 2 * MINUTE, came: 5, end: now + 3 * MINUTE }, now), /in about 3 minutes, .* last 2 minutes \(5 came\)/);
  assert.match(endInWords(facts, null, now), /not known yet/);
  assert.equal(endInWords({ ...facts, status: "paused" }, null, now), "");
  assert.equal(endInWords({ ...facts, accepted: 20 }, null, now), "");
  assert.match(endInWords({ ...facts, status: "draining", draining_until: new Date(now).toISOString() }, null, now), /until \d\d:\d\d/);
});

test("a round says how far it is", () => {
  assert.equal(roundInWords({ batch: 1000, received: 312, version: 5 }), "Round 5: 312 of 1,000 reports have come.");
  assert.equal(roundInWords({ batch: 0, received: 0, version: 6 }), "Version 6 asks nobody.");
});

test("no report may come to an experiment that asks nobody any more", () => {
  const facts = { status: "open", accepted: 1200, planned: 5000 };
  assert.equal(countInWords(facts), "1,200 of 5,000 reports that may come at most.");
  for (const status of ["stopped", "finished", "failed"]) {
    assert.equal(countInWords({ ...facts, status }), "1,200 of 5,000 reports that were planned at most; no more come.");
  }
});

test("a round says at which rate reports come, and when it closes", () => {
  const now = Date.now(), open = { batch: 100, received: 40, version: 3 };
  assert.match(roundInWords(open, null, { rate: 60 / (30 * MINUTE) }, now), /40 of 100 reports have come\. About 2 reports a minute come in, so that it closes around .*\.$/);
  assert.match(roundInWords(open, null, { rate: 1 / (30 * MINUTE) }, now), /About 2 reports an hour/);
  assert.equal(roundInWords(open, null, null, now), "Round 3: 40 of 100 reports have come.");
  assert.equal(roundInWords({ ...open, batch: 0 }, null, null, now), "Version 3 asks nobody.");
});

test("a page says since when an experiment runs", () => {
  assert.equal(sinceInWords(null, 0), "");
  assert.match(sinceInWords("2026-11-20T08:00:00Z", Date.parse("2026-11-27T08:00:00Z")), /20 November 2026, 7 days ago/);
});
