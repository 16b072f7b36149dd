import assert from "node:assert/strict";
import { test } from "node:test";

import "./support/page.mjs";

import { privacyPanel } from "../../server/privateer_server/dashboard/privacy.mjs";

const PROMISE = { experiment: "test", epsilon: 1, delta: 0, reports_per_person: 1, certificate: { claims: [], assumes: [] }, sources: [], rounds: [] };

test("the epsilon of each tier and source is in the sentence on what a person is promised", () => {
  const groups = [{ name: "generous", epsilon: 4, delta: 0, rounds: [] }];
  const promise = (record) => privacyPanel(record, null).flat(Infinity)[0].textContent;
  for (const key of ["tiers", "sources"]) {
    assert.ok(promise({ ...PROMISE, [key]: groups }).startsWith("Each person is promised epsilon 1, or epsilon 4 among people of generous. "));
  }
  assert.ok(promise(PROMISE).startsWith("Each person is promised epsilon 1. "));
});
