// @ts-check
/** Scripts of pages that nobody compiles: each name in them exists. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const COMPILER = fileURLToPath(new URL("../node_modules/.bin/tsc", import.meta.url));
const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const PAGES = ["server/privateer_server/dashboard", "lab/privateer_lab/services/web_demo/page"].map((folder) => `${ROOT}${folder}/**/*.mjs`);
/** No such name, a misspelled one, no such export (two codes), no value of a shorthand property. */
const UNKNOWN_NAME = /error TS(2304|2552|2305|2724|18004): /;
const OPTIONS = { allowJs: true, checkJs: true, noEmit: true, strict: false, skipLibCheck: true, types: [], target: "es2022", module: "nodenext", moduleResolution: "nodenext", lib: ["es2023", "dom", "dom.iterable"] };

/** What the compiler says of scripts. @param {string[]} include */
function compile(include) {
  const project = join(mkdtempSync(join(tmpdir(), "names-")), "tsconfig.json");
  writeFileSync(project, JSON.stringify({ compilerOptions: OPTIONS, include }));
  return spawnSync(COMPILER, ["-p", project], { encoding: "utf8" }).stdout.split("\n");
}

test("every name in the scripts of pages exists", () => {
  const lines = compile(PAGES);
  assert.ok(lines.length > 1, "the compiler has something to say of types, which these scripts have not");
  assert.deepEqual(lines.filter((line) => UNKNOWN_NAME.test(line)), []);
});

test("a name that a renaming left behind is found", () => {
  const file = join(mkdtempSync(join(tmpdir(), "names-")), "page.mjs");
  writeFileSync(file, "export const describe = ({ batch_size: batchSize }) => `${batchSize} of ${batch}`;\n");
  assert.match(compile([file]).join("\n"), UNKNOWN_NAME);
});
