import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { actionsFor, faultOf, graveness, isGrave, outcome, requestOf, trouble } from "../../server/privateer_server/dashboard/operator/actions.mjs";
import { openedAt } from "../../server/privateer_server/dashboard/operator/ages.mjs";
import { lineOf, lineOfFault, places } from "../../server/privateer_server/dashboard/operator/toml.mjs";

const SPEC = `# name = "not this"
[experiment]
name = "x"    # [algorithm]
arms = [
  "a", # horizon = 3
  "b]",
]
horizon = 20

[context.features]
"a b" = { levels = ["x", "y"] }
age.low = 3
note = """
[privacy]
epsilon = 1
"""

[[sources]]
name = "one"
[[sources]]
name = 'two'

[privacy]
epsilon = 2.0
`;
const lines = SPEC.split("\n"), at = (text) => lines.indexOf(text) + 1;

test("a field is found in its line", () => {
  assert.equal(lineOf(SPEC, "experiment.name"), 3);
  assert.equal(lineOf(SPEC, "experiment.arms.1"), 4);
  assert.equal(lineOf(SPEC, "experiment.horizon"), at("horizon = 20"));
  assert.equal(lineOf(SPEC, "context.features.a b.levels"), at('"a b" = { levels = ["x", "y"] }'));
  assert.equal(lineOf(SPEC, "context.features.age.low"), at("age.low = 3"));
  assert.equal(lineOf(SPEC, "sources.1.name"), at("name = 'two'"));
  assert.equal(lineOf(SPEC, "privacy.epsilon"), at("epsilon = 2.0"));
});

test("a field that is missing belongs to its table, and one without a table to no line", () => {
  assert.equal(lineOf(SPEC, "privacy.delta"), at("[privacy]") > at('note = """') ? lines.lastIndexOf("[privacy]") + 1 : 0);
  assert.equal(lineOf(SPEC, "algorithm.name"), null);
  assert.equal(lineOf(SPEC, ""), null);
  assert.equal(lineOf(SPEC, undefined), null);
});

test("every line of every example is found by its own field", () => {
  const folder = new URL("../../examples/", import.meta.url);
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".toml"))) {
    const text = readFileSync(new URL(file, folder), "utf8"), found = places(text);
    assert.ok(found.length > 5, file);
    for (const { path, line } of found) assert.equal(lineOf(text, path.join(".")), line, `${file} ${path}`);
  }
});

test("texts that are no TOML do not matter, and the parser names the line", () => {
  for (const text of ["[", "[[", "= 3", '"', "a.", "]]\n}", "a = '''", "[a.]\nx = [[[\n"]) places(text);
  assert.equal(lineOfFault("not TOML: Expected '=' after a key (at line 3, column 5)"), 3);
  assert.equal(lineOfFault("must be positive"), null);
});

const SECONDS = { name: "seconds", type: "number", optional: true };
const CHANGES = [
  { id: "pause", done: "is paused", is_final: false, fields: [SECONDS] },
  { id: "extend", done: "asks more people", is_final: false, fields: [{ name: "horizon", type: "number", optional: false }, SECONDS] },
  { id: "stop", done: "is stopped", is_final: true, fields: [SECONDS] },
  { id: "clone", done: "is created", is_final: false, fields: [] },
  { id: "delete", done: "is deleted", is_final: true, fields: [] },
];
const [PAUSE, EXTEND] = CHANGES;

test("what cannot be undone wants the name, and so does a round that may be given up", () => {
  assert.deepEqual(CHANGES.filter((one) => isGrave(one, {})).map(({ id }) => id), ["stop", "delete"]);
  assert.equal(isGrave(PAUSE, { seconds: "0" }), true);
});

test("a form that may give a round up does not say that it cannot be undone", () => {
  assert.match(graveness(CHANGES.find(({ id }) => id === "stop")), /cannot be undone/);
  assert.match(graveness(PAUSE), /^The round that is open may be given up/);
});

test("a value that no server takes is refused before anything is sent", () => {
  const seconds = { ...SECONDS, whole: false, least: 0, most: 100 }, horizon = { type: "number", optional: false, whole: true, least: 1, most: null };
  for (const text of ["", "0", "2.5", "100"]) assert.equal(faultOf(seconds, text), null, text);
  assert.equal(faultOf(seconds, "-5"), "This must be 0 or more.");
  assert.equal(faultOf(seconds, "101"), "This must be 100 or less.");
  assert.equal(faultOf(seconds, "soon"), "This must be a number.");
  assert.equal(faultOf(horizon, ""), "This is needed.");
  assert.equal(faultOf(horizon, "2.5"), "This must be a whole number.");
  assert.equal(faultOf({ type: "arm", optional: false, whole: false, least: null, most: null }, "a"), null);
});

test("only what the server says an experiment accepts is offered", () => {
  const ids = (...accepts) => actionsFor(CHANGES, { accepts }).map(({ id }) => id);
  assert.deepEqual(ids("pause", "extend", "stop", "clone", "delete"), ["pause", "extend", "stop", "clone", "delete"]);
  assert.deepEqual(ids(), []);
  assert.deepEqual(ids("something new", "delete"), ["delete"]);
});

test("requests have what was typed, and nothing that was not", () => {
  const of = (id, typed) => requestOf(CHANGES.find((one) => one.id === id), "a b", typed);
  assert.deepEqual(of("pause", { seconds: " " }), { method: "POST", path: "experiments/a%20b/pause", body: "{}" });
  assert.deepEqual(of("stop", { seconds: "60" }), { method: "POST", path: "experiments/a%20b/stop", body: '{"seconds":60}' });
  assert.deepEqual(of("extend", { horizon: "500" }).body, '{"horizon":500}');
  assert.deepEqual(of("delete", {}), { method: "DELETE", path: "experiments/a%20b", body: null });
});

test("what became of it, and what is wrong, is a sentence with a way on", () => {
  assert.equal(outcome(PAUSE, "x", { changed: true, waiting: [] }), "x is paused.");
  assert.match(outcome(EXTEND, "x", { changed: true, waiting: [{ action: "extend" }] }), /next version/);
  assert.equal(outcome(PAUSE, "x", { changed: true, waiting: [{ action: "extend" }] }), "x is paused.");
  assert.match(outcome(PAUSE, "x", { changed: false, waiting: [] }), /Nothing changed/);
  assert.match(outcome(PAUSE, "x", { changed: true, given_up: true, waiting: [] }), /round that was open is given up, with what came in it/);
  assert.match(trouble({ status: 401, problem: {} }, ""), /token is wrong.*still here/s);
  assert.match(trouble({}, "it was done"), /not known whether it was done.*Send it again/s);
  assert.equal(trouble({ status: 422, problem: { field: "privacy.epsilon", detail: "must be positive", remedy: "raise it" } }, ""), "privacy.epsilon: must be positive. Raise it.");
});

test("since when a round is open is read of the metrics", () => {
  const text = '# HELP x\nprivateer_round_opened_timestamp_seconds{experiment="a"} 5.0\nprivateer_round_opened_timestamp_seconds{experiment="ab"} 1.7e+09\n';
  assert.equal(openedAt(text, "ab"), 1.7e12);
  assert.equal(openedAt(text, "b"), null);
});
