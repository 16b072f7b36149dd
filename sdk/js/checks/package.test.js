// @ts-check
/** The tarball that is published: what is in it, and that whoever installs it can import what the README imports. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { before, test } from "node:test";

const here = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "package-"));
const within = join(folder, "node_modules", "@privateer", "client");
/** What git has, but for tests: the declarations are made while the tarball is. */
const NEEDED = ["src", "LICENSE", "README.md", "package.json", "jsconfig.json", "tsconfig.types.json"];
const tsc = join(here, "node_modules", ".bin", "tsc");
/** @type {string[]} */
let files = [];
let tarball = "";

before(() => {
  const clone = join(folder, "clone");
  for (const name of NEEDED) cpSync(join(here, name), join(clone, name), { recursive: true });
  symlinkSync(join(here, "node_modules"), join(clone, "node_modules"));
  execFileSync("npm", ["pack", "--pack-destination", folder], { cwd: clone, stdio: "pipe" });
  const said = execFileSync("npm", ["pack", "--json", "--dry-run", "--ignore-scripts"], { cwd: clone, stdio: "pipe" });
  const [packed] = JSON.parse(String(said));
  files = packed.files.map((/** @type {{ path: string }} */ one) => one.path);
  tarball = join(folder, packed.filename);
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module", private: true }));
  execFileSync("npm", ["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", tarball], { cwd: folder, stdio: "pipe" });
});

test("the tarball has the license, the README, the modules and their types, and nothing else", () => {
  const others = files.filter((path) => !/^(src\/.*\.js|types\/.*\.d\.ts)$/.test(path));
  assert.deepEqual(others.sort(), ["LICENSE", "README.md", "package.json"]);
  const modules = files.filter((path) => path.startsWith("src/"));
  assert.ok(modules.length > 50);
  for (const path of modules) assert.ok(files.includes(path.replace(/^src\/(.*)\.js$/, "types/$1.d.ts")), path);
  assert.equal(readFileSync(join(within, "LICENSE"), "utf8"), readFileSync(join(here, "../../LICENSE"), "utf8"));
});

test("it can be published: not private, whose it is, and which license", () => {
  const metadata = JSON.parse(readFileSync(join(within, "package.json"), "utf8"));
  assert.ok(!("private" in metadata));
  assert.deepEqual([metadata.author, metadata.license], ["the Privateer authors", "Apache-2.0"]);
  for (const entry of Object.values(metadata.exports)) {
    for (const file of Object.values(entry)) assert.ok(existsSync(join(within, String(file))), String(file));
  }
});

test("no link of its README leads out of the package", () => {
  const links = [...readFileSync(join(within, "README.md"), "utf8").matchAll(/\]\(([^)]*)\)/g)].map(([, link]) => link);
  assert.deepEqual(links.filter((link) => !/^(https:\/\/|#)/.test(link)), []);
});

test("whoever installs it can import what the README imports, and the providers", () => {
  const code = `
    import { Client, FileLedger } from "@privateer/client/node";
    import { Client as Device, OfflinePolicy, missing } from "@privateer/client";
    import { PrivateerWebProvider } from "@privateer/client/openfeature";
    console.log(Client.prototype instanceof Device, typeof FileLedger, typeof OfflinePolicy, typeof PrivateerWebProvider, typeof missing);`;
  writeFileSync(join(folder, "program.js"), code);
  const said = execFileSync(process.execPath, ["program.js"], { cwd: folder, stdio: "pipe" });
  assert.equal(String(said), "true function function function function\n");
});

/** How the docs install it, where a page's bundler, or Node, then finds it. @type {Record<string, string[]>} */
const WAYS = { "npm install FOLDER": ["clone"], "npm install --install-links FOLDER": ["--install-links", "clone"], "npm pack": [] };
const PROGRAM = `
  import { Client, missing } from "@privateer/client";
  import { Client as NodeClient, FileLedger } from "@privateer/client/node";
  import { PrivateerWebProvider } from "@privateer/client/openfeature";
  import { useArm, type ShownArm } from "@privateer/client/react";
  const client = new Client("https://learn.example", { limits: { epsilon: 4 } });
  const shown: ShownArm = useArm(client, "offers", null, { default: "none" });
  export const later: NodeClient = new NodeClient("https://learn.example", { ledger: new FileLedger("ledger.json") });
  export async function arm(): Promise<string> {
    const session = await client.join("offers");
    return session.choose({ visits: 3, premium: null }) + (await session.report(shown.ready)) + (await missing()).length + typeof PrivateerWebProvider;
  }`;

for (const [way, parts] of Object.entries(WAYS)) {
  test(`a program in TypeScript has types: ${way}`, () => {
    const home = mkdtempSync(join(folder, "program-"));
    writeFileSync(join(home, "package.json"), JSON.stringify({ type: "module", private: true }));
    const what = parts.length ? parts.map((one) => (one === "clone" ? join(folder, one) : one)) : [tarball];
    rmSync(join(folder, "clone", "types"), { recursive: true, force: true });
    execFileSync("npm", ["install", "--offline", "--no-audit", "--no-fund", ...what], { cwd: home, stdio: "pipe" });
    writeFileSync(join(home, "program.ts"), PROGRAM);
    const strict = ["--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--module", "nodenext", "--target", "es2023"];
    const compiled = (/** @type {string} */ file) => spawnSync(tsc, ["--noEmit", ...strict, file], { cwd: home, encoding: "utf8" }).stdout;
    assert.equal(compiled("program.ts"), "");
    writeFileSync(join(home, "wrong.ts"), PROGRAM.replace("epsilon: 4", "epsilon: 'four'"));
    assert.match(compiled("wrong.ts"), /TS2322/);
  });
}
