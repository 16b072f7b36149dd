import assert from "node:assert/strict";
import { test } from "node:test";

import * as shapes from "../../server/privateer_server/dashboard/shapes.mjs";

const bins = [{ lower: [0, 0], upper: [0.5, 1], where: {}, arms: { a: 1 } }, { lower: [0.5, 0], upper: [1, 1], where: {}, arms: { a: 0.3, b: 0.7 } }];

test("policies are told by their shape", () => {
  assert.equal(shapes.policyShape({ bins }), "bins");
  assert.equal(shapes.policyShape({ whatever: [{ group: "x", arms: { a: 0.5, b: 0.5 } }] }), "groups");
  assert.equal(shapes.policyShape({ arms: { a: 0.25, b: 0.75 } }), "shares");
  assert.equal(shapes.policyShape({ arms: { a: { x: 1 }, b: { x: 2 } } }), "numbers");
  assert.equal(shapes.policyShape({ active: [1, 2, 3] }), "kept");
});

test("what has no such shape is shown as it is", () => {
  for (const policy of [{}, { bins: [] }, { bins: [{ lower: [0], upper: [1, 2], arms: { a: 1 } }] }, { arms: { a: 3.1, b: -2 } },
    { arms: { a: 0, b: 0 } }, { centre: [1, 2] }, { bins: "many" }]) {
    assert.equal(shapes.policyShape(policy), "other", JSON.stringify(policy));
  }
});

test("arms keep the order of the spec, and others follow", () => {
  assert.deepEqual(shapes.armsOf({ experiment: { arms: ["c", "a"] } }, { bins }), ["c", "a", "b"]);
  assert.deepEqual(shapes.armsOf({}, { bins }), ["a", "b"]);
});

test("the arm ahead, and whether others are tried", () => {
  assert.deepEqual(shapes.leading({ a: 0.3, b: 0.7 }), { arm: "b", several: true });
  assert.deepEqual(shapes.leading({ a: 1, b: 0 }), { arm: "a", several: false });
  assert.deepEqual(shapes.leading({ a: 1 / 3, b: 1 / 3, c: 1 / 3 }), { arm: null, several: true });
});

const effects = { title: "effects", columns: ["segment", "arm", "effect", "low", "high", "decided"],
  rows: [["x", "b", 0.1, 0.05, 0.2, true], ["y", "b", null, null, null, false], ["z", "b", -0.1, null, 0.2, false]] };

test("tables are told by their columns", () => {
  assert.equal(shapes.tableShape(effects), "intervals");
  assert.equal(shapes.tableShape({ columns: ["people", ...effects.columns] }), "time");
  assert.equal(shapes.tableShape({ columns: ["arm", "gain", "low", "high", "people"] }), "intervals");
  assert.equal(shapes.tableShape({ columns: ["fact", "value"] }), "facts");
  assert.equal(shapes.tableShape({ columns: ["a", "b", "c"] }), "plain");
  assert.equal(shapes.tableShape({ columns: ["low", "high"] }), "facts");
});

test("estimates have names, intervals and whether they are decided; those without a value are left out", () => {
  assert.deepEqual(shapes.estimatesOf(effects), [
    { label: "x · b", value: 0.1, low: 0.05, high: 0.2, decided: true, people: null },
    { label: "z · b", value: -0.1, low: -Infinity, high: 0.2, decided: false, people: null },
  ]);
  assert.ok(shapes.isDifference(effects));
  assert.ok(!shapes.isDifference({ columns: ["of", "value", "low", "high"] }));
});

test("effects over time are a series each", () => {
  const table = { columns: ["people", "segment", "effect", "low", "high"], rows: [[10, "x", 1, 0, 2], [10, "y", 3, 2, 4], [20, "x", 1.5, 1, 2]] };
  const [first, second] = shapes.seriesOf(table);
  assert.equal(first.label, "x");
  assert.deepEqual(first.points.map(({ people, value }) => [people, value]), [[10, 1], [20, 1.5]]);
  assert.equal(second.points.length, 1);
});

test("a mean without an error beside it is no estimate", () => {
  assert.equal(shapes.stateEstimates({ a: { mean: 0.5, people: 3 } }), null);
  assert.deepEqual(shapes.stateEstimates({ a: { mean: 0.5, radius: 0.25 }, b: { mean: 1, standard_error: null } }),
    [{ label: "a", value: 0.5, low: 0.25, high: 0.75, decided: null }]);
  const [one] = shapes.stateEstimates({ a: { mean: 1, standard_error: 0.5 } });
  assert.ok(Math.abs(one.high - 1.98) < 1e-12);
});

test("no mean is drawn beyond the bounds of rewards, and it is said", () => {
  const [one, other] = shapes.inBounds([{ label: "a", value: 1.03, low: 0.9, high: 1.16 }, { label: "b", value: 0.5, low: 0.4, high: 0.6 }], { low: 0, high: 1 });
  assert.deepEqual(one, { label: "a", value: 1, low: 0.9, high: 1, bounded: true });
  assert.equal(other.bounded, false);
  assert.equal(shapes.inBounds(null, { low: 0, high: 1 }), null);
});

test("a bin has the estimates of the bin that holds it as a whole", () => {
  const state = { bins: [{ lower: [0, 0], upper: [0.5, 1] }, { lower: [0.5, 0], upper: [1, 0.5] }, { lower: [0.5, 0.5], upper: [1, 1] }] };
  assert.equal(shapes.stateBin(state, { lower: [0.25, 0.5], upper: [0.5, 1] }), state.bins[0]);
  assert.equal(shapes.stateBin(state, { lower: [0.5, 0], upper: [1, 1] }), null);
  assert.equal(shapes.stateBin({}, bins[0]), null);
});

test("widths are intervals, and those that are not known are left out", () => {
  const found = shapes.widthsOf({ left: [{ action: 3, estimate: 1, width: 0.5 }, { action: 4, estimate: 0, width: null }] });
  assert.deepEqual(found.rows.map(({ label, low, high }) => [label, low, high]), [["action 3", 0.5, 1.5]]);
  assert.equal(shapes.widthsOf({ heard: 3 }), null);
});

test("documents of any shape become tables", () => {
  const { plain, tables } = shapes.plainTables({ heard: 3, rows: [{ a: 1 }, { b: 2 }], named: { x: { a: 1 } }, empty: [] });
  assert.deepEqual(plain, [["heard", 3], ["empty", []]]);
  assert.deepEqual(tables, [{ title: "rows", columns: ["a", "b"], rows: [[1, null], [null, 2]] },
    { title: "named", columns: ["name", "a"], rows: [["x", 1]] }]);
});

test("figures of a history are a series each", () => {
  assert.deepEqual(shapes.figuresOf([{ version: 1, figures: { n: 1 } }, { version: 2, figures: { n: 2, m: 5 } }]),
    [{ name: "n", points: [{ version: 1, value: 1 }, { version: 2, value: 2 }] }, { name: "m", points: [{ version: 2, value: 5 }] }]);
});
