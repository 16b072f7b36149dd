// @ts-check
/** What a page loads once a bundler has made one file of it. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { build } from "esbuild";

/** The most that a page weighs, compressed, by what it uses: with upload tokens, too. @type {Record<string, number>} */
const BYTES = { "Client": 36_500, "Client, Issuer": 40_000, "OfflinePolicy": 23_500, "missing": 1_000 };

for (const [names, most] of Object.entries(BYTES)) {
  test(`a page that uses ${names} alone loads at most ${most} bytes`, async () => {
    const lines = names.split(", ").map((name) => `export { ${name} } from "../src/${name === "Issuer" ? "issuer" : "index"}.js";`);
    const stdin = { contents: lines.join("\n"), resolveDir: fileURLToPath(new URL(".", import.meta.url)) };
    const { outputFiles } = await build({ stdin, bundle: true, minify: true, format: "esm", write: false });
    const size = gzipSync(outputFiles[0].contents, { level: 9 }).length;
    assert.ok(size <= most, `${size} bytes`);
    assert.ok(size > 0.9 * most || most < 5_000, `${size} bytes: lower what it may weigh`);
  });
}

test("it weighs what the docs say", () => {
  const page = readFileSync(new URL("../../../docs/web.md", import.meta.url), "utf8");
  assert.equal(/([\d.]+) kB compressed/.exec(page)?.[1], String(BYTES.Client / 1000));
});
