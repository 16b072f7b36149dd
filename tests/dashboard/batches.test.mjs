import assert from "node:assert/strict";
import { test } from "node:test";

import { selectDelivered } from "../../server/privateer_server/dashboard/batches.mjs";

test("rounds that were given up, and the one that is open, are no batches", () => {
  const rounds = [{ version: 1, received: 200 }, { version: 2, received: 0 }, { version: 3, received: 210 }, { version: 4, received: 7 }];
  assert.deepEqual(selectDelivered(rounds, 4).map(({ version }) => version), [1, 3]);
});
