import assert from "node:assert/strict";
import { test } from "node:test";

import { formatAddress, parseAddress } from "../../server/privateer_server/dashboard/address.mjs";

test("addresses name an experiment and a part of its page", () => {
  assert.deepEqual(parseAddress(""), { name: "", part: "" });
  assert.deepEqual(parseAddress("#/"), { name: "", part: "" });
  assert.deepEqual(parseAddress("#/shop"), { name: "shop", part: "" });
  assert.deepEqual(parseAddress("#/shop/privacy"), { name: "shop", part: "privacy" });
});

test("what is no address is told from an experiment", () => {
  for (const hash of ["#main", "#/a/b/c", "#/%zz"]) assert.equal(parseAddress(hash), null);
});

test("an address leads back to its experiment", () => {
  for (const name of ["shop", "a/b", "100 %", "<img>"]) {
    assert.deepEqual(parseAddress(formatAddress(name, "history")), { name, part: "history" });
  }
});
