// @ts-check
/** The examples in JavaScript of docs/openfeature.md, of docs/review.md and of the README work as they stand there. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { test } from "node:test";

import { changed, serving } from "../test/support/served.js";
import { vectors } from "../test/support/vectors.js";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const [{ publication }] = vectors("publications");
const LOCAL = Buffer.from(publication, "hex");

/** @param {string} page @returns {string[]} */
const blocks = (page) => [...readFileSync(join(root, page), "utf8").matchAll(/```js\n(.*?)```/gs)].map(([, text]) => text);

/**
 * Run an example against a server whose experiment it asks for: features and arms get other names here.
 * @param {string} text @param {string} address
 */
async function run(text, address) {
  // Only a file of the package finds the package by its name.
  const folder = mkdtempSync(join(root, "sdk/js/checks/.made-"));
  const kept = mkdtempSync(join(tmpdir(), "ledgers-"));
  const there = text
    .replaceAll("https://learn.example", address)
    .replaceAll("https://shuffle.example", address)
    .replaceAll("${folder}", kept)
    .replaceAll('"ledger.json"', JSON.stringify(join(kept, "ledger.json")))
    .replaceAll("visits: 3, premium: false", "x1: 0.3, x2: 0.5")
    // A machine that is busy may take longer than a page waits.
    .replace('outcomes: { bought: "offers" } }', 'outcomes: { bought: "offers" }, within: 10 }')
    .replace("PrivateerServerProvider(clientOf)", "PrivateerServerProvider(clientOf, { within: 10 })");
  // Node has no IndexedDB, which is the browser's default.
  const kind = "class Client extends Browser { constructor(url, how) { super(url, { ledger: new MemoryLedger(), ...how }); } }";
  const here = there.replace("import { Client } from", "import { Client as Browser, MemoryLedger } from").replace("const client =", `${kind}\nconst client =`);
  const file = join(folder, "example.mjs");
  const seen = ["offer", "arm"].filter((name) => there.includes(`const ${name} =`));
  writeFileSync(file, `${text.includes("Ledger") ? there : here}\nexport { ${seen.join(", ")} };\n`);
  try {
    return await import(pathToFileURL(file).href);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

for (const [page, number, indirect] of /** @type {const} */ ([
  ["docs/openfeature.md", 0, true],
  ["docs/openfeature.md", 1, true],
  ["sdk/js/README.md", 0, false],
])) {
  test(`${page}, example ${number + 1}`, () =>
    serving(changed(LOCAL, { name: "offers" }), async (at) => {
      const found = await run(blocks(page)[number], at.url);
      assert.ok(["a", "b", "c"].includes(found.offer ?? found.arm), String(found.offer));
      for (let tries = 0; indirect && at.bodies.length === 0 && tries < 100; tries++) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      assert.equal(at.bodies.length, 1);
    }));
}

const [exported] = vectors("exports").exports;

for (const [page, number, file] of /** @type {const} */ ([["docs/review.md", 0, "peaks-shuffle.json"], ["sdk/js/README.md", 1, "offers.json"]])) {
  test(`${page}, an exported policy`, async () => {
    const kept = join(mkdtempSync(join(tmpdir(), "exports-")), file);
    writeFileSync(kept, JSON.stringify(exported.document));
    const { arm } = await run(blocks(page)[number].replace(JSON.stringify(file), JSON.stringify(kept)), "https://nowhere.example");
    assert.ok(["a", "b", "c"].includes(arm), String(arm));
  });
}

test("the examples are these", () => {
  const counts = ["docs/openfeature.md", "docs/review.md", "sdk/js/README.md"].map((page) => blocks(page).length);
  assert.deepEqual(counts, [2, 1, 2]);
});
