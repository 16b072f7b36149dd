import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { describeAccount } from "../../server/privateer_server/dashboard/people.mjs";
import { estimateEnd, addPoint } from "../../server/privateer_server/dashboard/rate.mjs";
import { describeEnd, describeRound, describeStart } from "../../server/privateer_server/dashboard/status.mjs";

const MINUTE = 60_000;

test("the end follows from the rate that was seen", () => {
  const points = addPoint(addPoint([], 0, 100), 10 * MINUTE, 300);
  const found = estimateEnd(points, 1300);
  assert.equal(found.end, 60 * MINUTE);
  assert.equal(found.came, 200);
});

test("nothing is said without reports, or of less than a minute", () => {
  assert.equal(estimateEnd([], 10), null);
  assert.equal(estimateEnd([{ at: 0, accepted: 1 }, { at: MINUTE / 2, accepted: 5 }], 10), null);
  assert.equal(estimateEnd([{ at: 0, accepted: 5 }, { at: 10 * MINUTE, accepted: 5 }], 10), null);
});

test("counts that went down begin anew, and old ones are forgotten", () => {
  assert.deepEqual(addPoint([{ at: 0, accepted: 50 }], 5, 3), [{ at: 5, accepted: 3 }]);
  assert.deepEqual(addPoint([{ at: 0, accepted: 1 }], 48 * 60 * MINUTE, 9), [{ at: 48 * 60 * MINUTE, accepted: 9 }]);
});

test("few counts are kept, however often the page asks", () => {
  let points = [];
  for (let n = 0; n < 20_000; n++) points = addPoint(points, n * 4000, n);
  assert.ok(points.length <= 150, String(points.length));
  assert.equal(estimateEnd(points, 40_000).rate, 1 / 4000);
});

test("the end is said in words, and not where there is none", () => {
  const facts = { status: "open", people: { not_asked: 10, unknown: 0 } }, now = Date.now();
  assert.match(describeEnd(facts, { rate: 1, since: 2 * MINUTE, came: 5, end: now + 3 * MINUTE }, now), /in about 3 minutes, .* last 2 minutes \(5 came\)/);
  assert.match(describeEnd(facts, null, now), /not known yet/);
  assert.equal(describeEnd({ ...facts, status: "paused" }, null, now), "");
  assert.equal(describeEnd({ ...facts, people: { not_asked: 0, unknown: 0 } }, null, now), "");
  assert.match(describeEnd({ ...facts, status: "draining", draining_until: new Date(now).toISOString() }, null, now), /until \d\d:\d\d/);
});

test("a round says how far it is", () => {
  assert.equal(describeRound({ batch_size: 1000, received: 312, version: 5 }), "Round 5: 312 of 1,000 reports have come.");
  assert.equal(describeRound({ batch_size: 0, received: 0, version: 6 }), "Version 6 asks nobody.");
});

test("a round whose shuffler has its reports does not say that none has come", () => {
  const unseen = { batch_size: 1376, received: 0, version: 20, people: { held: { at_shuffler: null } } };
  assert.equal(describeRound(unseen), "Round 20 waits for its shuffler to deliver 1,376 reports: what waits there is not seen here.");
  assert.match(describeRound({ ...unseen, people: { held: { at_shuffler: 0 } } }), /0 of 1,376 reports have come/);
});

test("the account of people is said in the words of the command line", () => {
  const cases = JSON.parse(readFileSync(new URL("people.json", import.meta.url)));
  for (const { people, sentence } of cases) assert.equal(describeAccount(people), sentence);
  assert.ok(cases.length > 4);
});

test("a round says at which rate reports come, and when it closes", () => {
  const now = Date.now(), open = { batch_size: 100, received: 40, version: 3 };
  assert.match(describeRound(open, null, { rate: 60 / (30 * MINUTE) }, now), /40 of 100 reports have come\. About 2 reports a minute come in, so that it closes around .*\.$/);
  assert.match(describeRound(open, null, { rate: 1 / (30 * MINUTE) }, now), /About 2 reports an hour/);
  assert.equal(describeRound(open, null, null, now), "Round 3: 40 of 100 reports have come.");
  assert.equal(describeRound({ ...open, batch_size: 0 }, null, null, now), "Version 3 asks nobody.");
});

test("a page says since when an experiment runs", () => {
  assert.equal(describeStart(null, 0), "");
  assert.match(describeStart("2026-11-20T08:00:00Z", Date.parse("2026-11-27T08:00:00Z")), /20 November 2026, 7 days ago/);
});
