import assert from "node:assert/strict";
import { test } from "node:test";

import { splitTables } from "../../server/privateer_server/dashboard/documents.mjs";
import { collectFigures } from "../../server/privateer_server/dashboard/panels.mjs";

test("documents of any shape become tables", () => {
  const { plain, tables } = splitTables({ heard: 3, rows: [{ a: 1 }, { b: 2 }], named: { x: { a: 1 } }, empty: [] });
  assert.deepEqual(plain, [["heard", 3], ["empty", []]]);
  assert.deepEqual(tables, [{ title: "rows", columns: ["a", "b"], rows: [[1, null], [null, 2]] },
    { title: "named", columns: ["name", "a"], rows: [["x", 1]] }]);
});

test("figures of a history are a series each", () => {
  assert.deepEqual(collectFigures([{ version: 1, figures: { n: 1 } }, { version: 2, figures: { n: 2, m: 5 } }]),
    [{ name: "n", points: [{ version: 1, value: 1 }, { version: 2, value: 2 }] }, { name: "m", points: [{ version: 2, value: 5 }] }]);
});
