import assert from "node:assert/strict";
import { test } from "node:test";

import * as boxes from "../../server/privateer_server/dashboard/boxes.mjs";
import { roundTicks } from "../../server/privateer_server/dashboard/charts.mjs";

const within = (found) => Object.entries(found).map(([feature, [low, high]]) => ({ kind: "between", feature, low, high, missing: false }));
const bin = (lower, upper, found = {}) => ({ lower, upper, where: within(found), arms: { a: 1 } });
const PLANE = [bin([0, 0], [0.5, 1], { x: [10, 20] }), bin([0.5, 0], [1, 0.5], { x: [20, 30] }), bin([0.5, 0.5], [1, 1], { x: [20, 30] })];
const SPACE = [bin([0, 0, 0], [0.5, 1, 1]), bin([0.5, 0, 0], [1, 1, 0.25]), bin([0.5, 0, 0.25], [1, 1, 0.5]), bin([0.5, 0, 0.5], [1, 1, 1])];

test("columns that are cut most are drawn first", () => {
  assert.deepEqual(boxes.cutColumns(SPACE), [2, 0]);
  assert.deepEqual(boxes.firstAxes(SPACE), [0, 2]);
  assert.deepEqual(boxes.firstAxes(PLANE), [0, 1]);
  assert.deepEqual(boxes.firstAxes([bin([0], [1])]), [0, -1]);
  assert.deepEqual(boxes.firstAxes([bin([0, 0, 0], [1, 1, 1])]), [0, -1]);
});

test("scales are drawn before what says yes or no", () => {
  const mixed = [bin([0, 0, 0], [0.5, 0.5, 1], { size: [0, 5] }), bin([0, 0.5, 0], [0.5, 1, 1], { size: [0, 5] }),
    bin([0.5, 0, 0], [1, 1, 0.5], { size: [5, 10] }), bin([0.5, 0, 0.5], [1, 1, 1], { size: [5, 10] })];
  assert.deepEqual(boxes.firstAxes(mixed, ["size", "new", "old"]), [0, 1]);
  assert.deepEqual(boxes.firstAxes(mixed, ["new", "old", "size"])[1], 2);
});

test("every place is in one bin, the ends of the space included", () => {
  for (const at of [[0, 0], [0.5, 0.5], [1, 1], [0.999, 0.1], [0.5, 0.4999]]) {
    const inside = boxes.sliceBins(PLANE, [], at);
    assert.equal(inside.length, 1);
    assert.equal(boxes.findBin(PLANE, at), inside[0]);
  }
});

test("a slice shows the bins that it meets", () => {
  assert.deepEqual(boxes.sliceBins(SPACE, [0, 1], [0.5, 0.5, 0.3]), [0, 2]);
  assert.deepEqual(boxes.sliceBins(SPACE, [0, 2], [0.5, 0.5, 0.5]), [0, 1, 2, 3]);
});

test("rectangles tile the drawing, and the second axis goes up", () => {
  const found = PLANE.map((one) => boxes.rectangle(one, [0, 1], 200, 100));
  assert.deepEqual(found[1], { x: 100, y: 50, width: 100, height: 50 });
  assert.deepEqual(found[2], { x: 100, y: 0, width: 100, height: 50 });
  assert.equal(found.reduce((sum, { width, height }) => sum + width * height, 0), 200 * 100);
  assert.deepEqual(boxes.rectangle(bin([0.25], [0.5]), [0, -1], 200, 60), { x: 50, y: 0, width: 50, height: 60 });
  assert.equal(boxes.makePath(found.slice(1)), "M100 50h100v50h-100zM100 0h100v50h-100z");
});

test("arrow keys cross edges, and stop at the ends", () => {
  assert.deepEqual(boxes.findBin(PLANE, boxes.moveAcross(PLANE, [0.2, 0.8], 0, true)), 2);
  assert.deepEqual(boxes.findBin(PLANE, boxes.moveAcross(PLANE, [0.7, 0.8], 1, false)), 1);
  assert.deepEqual(boxes.moveAcross(PLANE, [0.2, 0.8], 0, false), [0.2, 0.8]);
});

test("arrow keys find their way across parts in which nobody can be", () => {
  const apart = [bin([0], [0.25]), bin([0.75], [1])];
  assert.deepEqual(boxes.findBin(apart, [0.5]), -1);
  for (const from of [0.1, 0.5]) assert.deepEqual(boxes.moveAcross(apart, [from], 0, true), [0.75]);
  assert.equal(boxes.findBin(apart, boxes.moveAcross(apart, [0.8], 0, false)), 0);
});

test("the arm ahead, and whether others are tried", () => {
  assert.deepEqual(boxes.findLeader({ a: 0.3, b: 0.7 }), { arm: "b", several: true });
  assert.deepEqual(boxes.findLeader({ a: 1, b: 0 }), { arm: "a", several: false });
  assert.deepEqual(boxes.findLeader({ a: 1 / 3, b: 1 / 3, c: 1 / 3 }), { arm: null, several: true });
});

test("where several arms have the same share none is ahead", () => {
  assert.deepEqual([...boxes.measureAreas([bin([0, 0], [1, 1])], [0], [0, 1], [{ arm: null }])], []);
});

test("areas of arms add up to the drawing", () => {
  const leads = [{ arm: "a" }, { arm: "b" }, { arm: "a" }];
  assert.deepEqual([...boxes.measureAreas(PLANE, [0, 1, 2], [0, 1], leads)], [["a", 0.75], ["b", 0.25]]);
});

test("ticks are in the units of the feature, and never too many", () => {
  assert.deepEqual(boxes.makeTicks(PLANE, 0, "x"), [{ at: 0, value: 10 }, { at: 0.5, value: 20 }, { at: 1, value: 30 }]);
  assert.deepEqual(boxes.makeTicks(PLANE, 1, "y").map(({ value }) => value), ["no", "yes"]);
  const features = { y: { low: 18, high: 99 }, r: { quantiles: [1, 5, 9] }, o: { levels: ["small", "large"], ordered: true }, b: { boolean: true } };
  const ends = (name) => boxes.makeTicks([bin([0, 0], [1, 1])], 1, name, 6, features).map(({ value }) => value);
  assert.deepEqual(["y", "r", "o", "b", "o is missing"].map(ends), [[18, 99], [1, 9], ["small", "large"], ["no", "yes"], ["no", "yes"]]);
  const level = { ...bin([0, 0], [1, 1]), where: [{ kind: "among", feature: "o", values: [1, 5], missing: false }] };
  assert.deepEqual(boxes.makeTicks([level], 1, "o", 6, features).map(({ value }) => value), ["small", "large"]);
  const many = Array.from({ length: 64 }, (_, n) => bin([n / 64], [(n + 1) / 64], { x: [n, n + 1] }));
  const shown = boxes.makeTicks(many, 0, "x", 4);
  assert.ok(shown.length <= 5);
  assert.deepEqual([shown[0].at, shown.at(-1).at], [0, 1]);
});

test("round ticks lie in their range", () => {
  assert.deepEqual(roundTicks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(roundTicks(-0.13, 0.21, 4), [-0.1, 0, 0.1, 0.2]);
  assert.deepEqual(roundTicks(3, 3), [3]);
});
