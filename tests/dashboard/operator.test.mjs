import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { selectActions, findFault, describeGravity, isGrave, describeOutcome, makeRequest, describeTrouble } from "../../server/privateer_server/dashboard/operator/actions.mjs";
import { parseOpenedAt } from "../../server/privateer_server/dashboard/operator/ages.mjs";
import { findLine, parseFaultLine, listPlaces } from "../../server/privateer_server/dashboard/operator/toml.mjs";

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
  assert.equal(findLine(SPEC, "experiment.name"), 3);
  assert.equal(findLine(SPEC, "experiment.arms.1"), 4);
  assert.equal(findLine(SPEC, "experiment.horizon"), at("horizon = 20"));
  assert.equal(findLine(SPEC, "context.features.a b.levels"), at('"a b" = { levels = ["x", "y"] }'));
  assert.equal(findLine(SPEC, "context.features.age.low"), at("age.low = 3"));
  assert.equal(findLine(SPEC, "sources.1.name"), at("name = 'two'"));
  assert.equal(findLine(SPEC, "privacy.epsilon"), at("epsilon = 2.0"));
});

test("a field that is missing belongs to its table, and one without a table to no line", () => {
  assert.equal(findLine(SPEC, "privacy.delta"), at("[privacy]") > at('note = """') ? lines.lastIndexOf("[privacy]") + 1 : 0);
  assert.equal(findLine(SPEC, "algorithm.name"), null);
  assert.equal(findLine(SPEC, ""), null);
  assert.equal(findLine(SPEC, undefined), null);
});

test("every line of every example is found by its own field", () => {
  const folder = new URL("../../examples/", import.meta.url);
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".toml"))) {
    const text = readFileSync(new URL(file, folder), "utf8"), found = listPlaces(text);
    assert.ok(found.length > 5, file);
    for (const { path, line } of found) assert.equal(findLine(text, path.join(".")), line, `${file} ${path}`);
  }
});

test("texts that are no TOML do not matter, and the parser names the line", () => {
  for (const text of ["[", "[[", "= 3", '"', "a.", "]]\n}", "a = '''", "[a.]\nx = [[[\n"]) listPlaces(text);
  assert.equal(parseFaultLine("not TOML: Expected '=' after a key (at line 3, column 5)"), 3);
  assert.equal(parseFaultLine("must be positive"), null);
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
  assert.match(describeGravity(CHANGES.find(({ id }) => id === "stop")), /cannot be undone/);
  assert.match(describeGravity(PAUSE), /^The round that is open may be given up/);
});

test("a value that no server takes is refused before anything is sent", () => {
  const seconds = { ...SECONDS, whole: false, least: 0, most: 100 }, horizon = { type: "number", optional: false, whole: true, least: 1, most: null };
  for (const text of ["", "0", "2.5", "100"]) assert.equal(findFault(seconds, text), null, text);
  assert.equal(findFault(seconds, "-5"), "This must be 0 or more.");
  assert.equal(findFault(seconds, "101"), "This must be 100 or less.");
  assert.equal(findFault(seconds, "soon"), "This must be a number.");
  assert.equal(findFault(horizon, ""), "This is needed.");
  assert.equal(findFault(horizon, "2.5"), "This must be a whole number.");
  assert.equal(findFault({ type: "arm", optional: false, whole: false, least: null, most: null }, "a"), null);
});

test("only what the server says an experiment accepts is offered", () => {
  const ids = (...allowed) => selectActions(CHANGES, { allowed_changes: allowed }).map(({ id }) => id);
  assert.deepEqual(ids("pause", "extend", "stop", "clone", "delete"), ["pause", "extend", "stop", "clone", "delete"]);
  assert.deepEqual(ids(), []);
  assert.deepEqual(ids("something new", "delete"), ["delete"]);
});

test("requests have what was typed, and nothing that was not", () => {
  const of = (id, typed) => makeRequest(CHANGES.find((one) => one.id === id), "a b", typed);
  assert.deepEqual(of("pause", { seconds: " " }), { method: "POST", path: "experiments/a%20b/pause", body: "{}" });
  assert.deepEqual(of("stop", { seconds: "60" }), { method: "POST", path: "experiments/a%20b/stop", body: '{"seconds":60}' });
  assert.deepEqual(of("extend", { horizon: "500" }).body, '{"horizon":500}');
  assert.deepEqual(of("delete", {}), { method: "DELETE", path: "experiments/a%20b", body: null });
});

test("what became of it, and what is wrong, is a sentence with a way on", () => {
  assert.equal(describeOutcome(PAUSE, "x", { changed: true, pending_changes: [] }), "x is paused.");
  assert.match(describeOutcome(EXTEND, "x", { changed: true, pending_changes: [{ action: "extend" }] }), /next version/);
  assert.equal(describeOutcome(PAUSE, "x", { changed: true, pending_changes: [{ action: "extend" }] }), "x is paused.");
  assert.match(describeOutcome(PAUSE, "x", { changed: false, pending_changes: [] }), /Nothing changed/);
  assert.match(describeOutcome(PAUSE, "x", { changed: true, round_given_up: true, pending_changes: [] }), /round that was open is given up, with what came in it/);
  assert.match(describeTrouble({ status: 401, problem: {} }, ""), /token is wrong.*still here/s);
  assert.match(describeTrouble({}, "it was done"), /not known whether it was done.*Send it again/s);
  assert.equal(describeTrouble({ status: 422, problem: { field: "privacy.epsilon", detail: "must be positive", remedy: "raise it" } }, ""), "privacy.epsilon: must be positive. Raise it.");
});

test("since when a round is open is read of the metrics", () => {
  const text = '# HELP x\nprivateer_round_opened_timestamp_seconds{experiment="a"} 5.0\nprivateer_round_opened_timestamp_seconds{experiment="ab"} 1.7e+09\n';
  assert.equal(parseOpenedAt(text, "ab"), 1.7e12);
  assert.equal(parseOpenedAt(text, "b"), null);
});
