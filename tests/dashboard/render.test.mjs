import assert from "node:assert/strict";
import { test } from "node:test";

import { placed } from "./support/page.mjs";

const { RENDERERS, render } = await import("../../server/privateer_server/dashboard/render.mjs");
const { BinsView, findMeans } = await import("../../server/privateer_server/dashboard/bins.mjs");
const { FindingsPanel } = await import("../../server/privateer_server/dashboard/findings.mjs");
const { drawSpec } = await import("../../server/privateer_server/dashboard/panels.mjs");

const estimate = (name, value, low, high, more = {}) => ({ name, value, low, high, at_bound: false, people: null, ...more });
const effect = (option, group, value, reason) => ({ arm: option, group, value, low: value === null ? null : value - 0.1, high: value === null ? null : value + 0.1, reason, people: 100, p_value: null, detectable: null, contribution: null, remark: "" });
const between = (feature, low, high) => ({ kind: "between", feature, low, high, missing: false });
const BINS = [{ lower: [0, 0], upper: [0.5, 1], where: [between("x", 0, 5)], arms: { a: 1 } }, { lower: [0.5, 0], upper: [1, 1], where: [between("x", 5, 10)], arms: { a: 0.3, b: 0.7 } }];
const ANSWER = { stage: "learning", people: 4500, rounds: 9, confidence: 0.95, recommended: null, basis: null, stop_reason: null, estimates: [], effects: [], gain: null, warnings: [], parts: [] };
const FACTS = { accepted: 4500, batch_size: 500, publishes_result: true, spec: { experiment: { arms: ["a", "b"] } } };

const about = (more = {}) => ({ id: "one", width: 800, options: ["a", "b"], features: {}, answer: ANSWER, ...more });
const drawn = (shown, more) => placed(render(shown, about(more))).open();
const rowsOf = (place, id) => place.all().find((one) => one.id === id).find("tbody")[0].find("tr").map((row) => row.children.map((one) => one.textContent));

/** One of every kind, and what a page that shows it says. */
const SAMPLES = [
  [{ kind: "bins", columns: ["x", "y"], bins: BINS }, ["The 2 bins of the policy as a table", "x: 0 to 5"]],
  [{ kind: "groups", groups: [{ name: "everybody", arms: { a: 0.25, b: 0.75 } }] }, ["Everybody", "A = a", "25.0 %"]],
  [{ kind: "coefficients", link: "logistic", unit: "log odds", shared: { age: 0.5 }, arms: { a: { intercept: 1 }, b: { x: 2 } } }, ["log odds", "logistic", "age", "intercept"]],
  [{ kind: "plays", plays: { 3: 7 }, active: ["3", "4"], people: 100, draw: { seed: 5, start: 100, places: 50 } }, ["100 people's reports are wanted", "100 to 150"]],
  [{ kind: "point", centre: { x: 0.1 }, average: { x: 0.2 }, nearest: 0.5, farthest: 2 }, ["0.1", "0.2", "Nearest to the centre", "0.5", "2"]],
  [{ kind: "rules", rules: [{ group: "young", arm: "b", basis: "decided against all other options" }] }, ["Recommendations", "young", "yes"]],
  [{ kind: "bin means", columns: ["x"], confidence: 0.95, bins: [{ lower: [0], upper: [1], where: [], means: [estimate("a", 0.5, 0.4, 0.6)] }] }, ["Mean rewards in the 1 bin that reports are about", "95 %", "everybody"]],
  [{ kind: "over time", people: [10, 20], effects: [{ arm: "b", group: "young", values: [0.1, 0.2], lows: [0, 0.1], highs: [0.2, 0.3] }] }, ["Over time", "young · b"]],
  [{ kind: "guardrail", name: "refund", effects: [effect("b", null, 0.2, "decided at an earlier look")] }, ["Guardrail: refund", "Squares are decided.", "All: decided at an earlier look."]],
  [{ kind: "intervals", title: "shares of people", of: "share", estimates: [estimate("young", 0.25, 0.2, 0.3)] }, ["Shares of people", "25.0 %", "20.0 %"]],
  [{ kind: "losses", expected_losses: [{ name: "b: young", expected: null, most: 0.75 }] }, ["What a person loses by following it", "b: young", "0.75"]],
  [{ kind: "figures", title: "what it rests on", facts: [{ name: "least share", value: 0.125, kind: "share" }, { name: "ended by", value: null, kind: "words" }] }, ["What it rests on", "Least share", "12.5 %"]],
  [{ kind: "table", title: "what coins ask", columns: [{ name: "question", kind: "words" }, { name: "share of people", kind: "share" }], rows: [["refund", 0.5]] }, ["What coins ask", "50.0 %"]],
  [{ kind: "drift test", detected: true, evidence: 3, false_alarm_rate: 0.001, since: 1200 }, ["first 1,200 people contradict", "0.001"]],
  [{ kind: "features", people: 300, candidates: 3, kept: ["age"], gains: { age: 0.2, hours: 0.01 } }, ["Of 3 features, 1 is kept: age.", "300 people were asked"]],
  [{ kind: "shapes", features_left: 2, arms_left: 0, functions: [
    { feature: "age", is_ordered: true, has_missing: true, cells: ["18 to 54", "54 to 90", "missing"], shares: [0.5, 0.25, 0.25], gain: 0.07, cells_left: 0, curves: [{ arm: "a", values: [0.1, -0.1, 0], lows: [0, -0.2, -0.1], highs: [0.2, 0, 0.1] }, { arm: "b", values: [-0.1, 0.1, 0], lows: [-0.2, 0, -0.1], highs: [0, 0.2, 0.1] }] },
    { feature: "device", is_ordered: false, has_missing: false, cells: ["phone"], shares: [1], gain: 0, cells_left: 3, curves: [{ arm: "a", values: [0], lows: [-0.1], highs: [0.1] }] }] },
  ["What each feature adds", "Not shown: 2 features", "age by itself gains 0.07", "3 more levels", "B = b", "18 to 54", "50.0 %", "-0.1 (-0.2 to 0)"]],
  [{ kind: "half-lives", used: 500, candidates: [null, 500], probabilities: [0.25, 0.75] }, ["counts half after 500 people", "never", "0.75"]],
];

test("every kind that a server publishes has a renderer", () => {
  assert.deepEqual(Object.keys(RENDERERS).sort(), SAMPLES.map(([{ kind }]) => kind).sort());
});

for (const [shown, said] of SAMPLES) {
  test(`what is shown of the kind ${shown.kind}`, () => {
    const text = drawn(shown, { map: new BinsView() }).textContent;
    for (const one of said) assert.ok(text.includes(one), `${one} in ${text}`);
    assert.ok(!text.includes("undefined") && !text.includes("NaN"), text);
  });
}

test("what is of no known kind is shown as text with a hint, and is no error", () => {
  for (const shown of [{ kind: "rings", rows: [{ a: 1 }, { b: "two" }] }, { kind: "constructor" }, { kind: "__proto__" }, {}, null, "rings", { kind: null }]) {
    assert.match(drawn(shown).textContent, /This page does not know how to draw what follows/);
  }
  assert.match(drawn({ kind: "rings", rows: [{ a: 1 }, { b: "two" }] }).textContent, /rings.*two/);
});

test("arms keep the order of the spec, and others follow", () => {
  const groups = [{ name: "everybody", arms: { later: 0.5, a: 0.5 } }];
  const legend = (options) => drawn({ kind: "groups", groups }, { options }).find("li").map(({ textContent }) => textContent.trim());
  assert.deepEqual(legend(["c", "a"]), ["A = c", "B = a", "C = later"]);
  assert.deepEqual(legend([]), ["A = later", "B = a"]);
});

test("a bin has the estimates of the bin that holds it as a whole", () => {
  const known = [{ lower: [0, 0], upper: [0.5, 1] }, { lower: [0.5, 0], upper: [1, 0.5] }, { lower: [0.5, 0.5], upper: [1, 1] }].map((one, n) => ({ ...one, where: [], means: [estimate(`${n}`, 0, 0, 0)] }));
  const answer = { parts: [{ kind: "table" }, { kind: "bin means", columns: ["x", "y"], bins: known, confidence: 0.9 }] };
  assert.deepEqual(findMeans(answer, { lower: [0.25, 0.5], upper: [0.5, 1] }), { ...known[0], level: 0.9 });
  assert.equal(findMeans(answer, { lower: [0.5, 0], upper: [1, 1] }), null);
  assert.equal(findMeans({ parts: [] }, BINS[0]), null);
});

test("the bin that is chosen has its shares and its estimates, each with its interval", () => {
  const means = [estimate("a", 1, 0.9, 1, { at_bound: true }), estimate("b", 0.5, 0.4, 0.6)];
  const parts = [{ kind: "bin means", columns: ["x", "y"], bins: [{ ...BINS[1], means }], confidence: 0.95 }];
  const place = drawn(SAMPLES[0][0], { map: new BinsView(), answer: { ...ANSWER, parts } });
  const [chosen] = place.find("chosen");
  assert.match(chosen.textContent, /x: 5 to 10.*b: 70 % of its people.*a: 30 % of its people.*interval of about 95 %/);
  assert.equal(chosen.find("interval").length, 6);
  assert.deepEqual(rowsOf(place, "bin-estimates"), [["a", "1", "0.9", "1"], ["b", "0.5", "0.4", "0.6"]]);
  assert.match(chosen.textContent, /beyond what is possible are drawn at the bound/);
});

test("what was left in every version is drawn, and a version that is not there is said", async () => {
  const left = (active, plays) => ({ kind: "plays", plays, active, people: 10, draw: { seed: 1, start: 0, places: 10 } });
  const versions = [left(["2", "10", "3"], { 2: 1 }), left(["10", "3"], { 10: 4 })];
  const place = drawn(versions[1], { versions: () => Promise.resolve(versions) });
  await new Promise(setImmediate);
  assert.equal(place.find("kept").length + place.find("played").length, 5);
  assert.equal(place.find("played").length, 2);
  assert.deepEqual(rowsOf(place.open(), "kept").map(([name, last]) => [name, last]), [["2", "1"], ["3", "2"], ["10", "2"]]);
  const broken = drawn(versions[1], { versions: () => Promise.reject(new Error("gone")) });
  await new Promise(setImmediate);
  assert.match(broken.textContent, /Earlier versions cannot be fetched now/);
});

/** What the panel of findings says of an answer. */
function findings(answer, facts = {}) {
  const place = placed();
  new FindingsPanel().show(place, { ...FACTS, ...facts }, { answer: { result: { ...ANSWER, ...answer } } }, 800);
  return place.open();
}

test("estimates are drawn with their intervals, unless they are effects, which are drawn once", () => {
  const estimates = [estimate("a", 0.5, 0.25, 0.75, { people: 600.5 }), estimate("b", 1, 0.9, 1, { at_bound: true })];
  const place = findings({ estimates });
  assert.equal(place.find("mark").length, 2);
  assert.deepEqual(rowsOf(place, "estimates"), [["a", "0.5", "0.25", "0.75", "600.5"], ["b", "1", "0.9", "1", "–"]]);
  assert.match(place.textContent, /drawn at the bound/);
  const both = findings({ estimates, effects: [effect("b", "young", 0.2, "decided better"), effect("b", null, null, "too few people beside the noise")] });
  assert.equal(both.find("h3").filter(({ textContent }) => textContent === "Estimates").length, 0);
  assert.deepEqual(rowsOf(both, "effects"), [["young", "b", "0.2", "0.1", "0.3", "decided better", "100"]]);
});

test("reasons are counted where there are several", () => {
  const hint = (...reasons) => findings({ effects: reasons.map((reason, n) => effect(`x${n}`, null, 0.2, reason)) }).find("hint").map(({ textContent }) => textContent);
  const holds = "its interval holds 0", few = "too few people beside the noise";
  assert.deepEqual(hint(holds, holds), ["Rings are not decided: their intervals hold 0."]);
  assert.deepEqual(hint(few, few), [`Diamonds are not decided, for another reason. All: ${few}.`]);
  assert.deepEqual(hint(holds, "decided better"), [`Squares are decided. Rings are not decided: their intervals hold 0. Of 2: decided better: 1; ${holds}: 1.`]);
});

test("before the first report nothing is said of arms", () => {
  const begun = { people: 0, rounds: 0, confidence: null };
  assert.match(findings(begun, { accepted: 0 }).textContent, /^No report has been counted\.$/);
  assert.match(findings(begun, { accepted: 50 }).textContent, /Only 50 reports have come/);
});

test("the gain has its interval, and says where nothing is known", () => {
  const gain = { arm: "b", value: 0.1, low: null, high: 0.2, people: 300, means: [estimate("policy", 0.6, 0.5, 0.7)] };
  const place = findings({ gain, effects: [effect("b", null, 0.2, "decided better")] });
  assert.deepEqual(rowsOf(place, "gain"), [["over b for all", "0.1", "–", "0.2", "300"]]);
  assert.match(place.textContent, /Mean rewards of both/);
  assert.match(findings({ gain: { ...gain, value: null, means: [] } }).textContent, /Nothing is known of it yet, over b for all/);
});

test("a part of an answer that this page does not know leaves the others as they are", () => {
  const place = findings({ parts: [{ kind: "rings", radius: 3 }, SAMPLES[5][0]] });
  assert.match(place.textContent, /does not know how to draw.*Radius3.*Recommendations/);
});

test("a spec is shown section by section", () => {
  const place = placed(drawSpec({ experiment: { name: "shop", arms: ["a", "b"] }, segments: [], sources: [{ name: "x" }] }));
  assert.deepEqual(place.find("h3").map(({ textContent }) => textContent), ["Experiment", "Sources"]);
  assert.match(place.textContent, /Nameshop.*a, b/);
});
