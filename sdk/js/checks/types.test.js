// @ts-check
/** The declarations in types/, which `npm run types` makes of the sources, are what programs in TypeScript need. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

const here = fileURLToPath(new URL("..", import.meta.url));
const tsc = join(here, "node_modules", ".bin", "tsc");
/** @param {string} folder @param {string} ending */
const names = (folder, ending) =>
  readdirSync(join(here, folder), { recursive: true }).map(String).filter((name) => name.endsWith(ending)).map((name) => name.slice(0, -ending.length)).sort();

test("every module has its declarations", () => {
  const modules = names("src", ".js");
  assert.ok(modules.length > 40);
  assert.deepEqual(names("types", ".d.ts"), modules, "run npm run types");
});

const NODE = ["--module", "nodenext"];
/** How programs may be compiled: as Node resolves modules, and as bundlers do. */
const WAYS = { nodenext: NODE, node16: ["--module", "node16"], bundler: ["--module", "esnext", "--moduleResolution", "bundler"] };

/** What the compiler says of a program in TypeScript that uses the package. @param {string} text @param {string[]} way */
function compiled(text, way = NODE) {
  const folder = mkdtempSync(join(here, "node_modules", ".types-"));
  const file = join(folder, "program.ts");
  writeFileSync(file, text);
  try {
    execFileSync(tsc, ["--noEmit", "--strict", ...way, "--target", "es2023", "--skipLibCheck", "--types", "node", file], { stdio: "pipe" });
    return "";
  } catch (error) {
    return String(/** @type {any} */ (error).stdout);
  }
}

const PROGRAM = `
  import { Client, MemoryLedger, OfflinePolicy, type Answer, type PublishedState, type Session } from "@privateer/client";
  import { Issuer } from "@privateer/client/issuer";
  import { PrivateerWebProvider, PrivateerServerProvider } from "@privateer/client/openfeature";
  import type { Provider as Web } from "@openfeature/web-sdk";
  import type { Provider as Server } from "@openfeature/server-sdk";
  const client = new Client("https://learn.example", { ledger: new MemoryLedger(), limits: { epsilon: 2 } });
  const attest = async (experiment: string) => (await fetch("/attestation/" + experiment)).text();
  const paid = new Client("https://learn.example", { ledger: new MemoryLedger(), issuer: new Issuer("https://issuer.example", { attest }) });
  const left: number = await paid.fetchTokens("offers");
  const session: Session = await client.join("offers");
  const arm: string = session.choose({ age: 41, country: "NL", premium: null });
  const outcome: "accepted" | "late" | "not-requested" | "already-reported" | "refused" | "pending" = await session.report(1);
  export const web: Web = new PrivateerWebProvider(client, { experiments: ["offers"] });
  export const server: Server = new PrivateerServerProvider((key: string) => client);
  const policy: OfflinePolicy = await OfflinePolicy.read("{}", { warn: () => {} });
  const same: string = policy.choose({ age: 41 }, 7);
  const point: number[] = policy.choose<number[]>();
  const state: PublishedState = await (await fetch("https://learn.example/experiments/offers/state")).json();
  const known = (answer: Answer) => answer.parts.map((part) => (part.kind === "bin means" ? part.bins.length : part.kind === "rules" ? part.rules.length : 0));
  const found: number[] = known(state.answer);
  const told: string | null = policy.result && "status" in policy.result ? policy.result.stop_reason : null;
  console.log(found, told);
  console.log(left, arm, outcome, same, point, policy.features.length, policy.status);
`;

/** @param {string} name @returns {any} */
const vectors = (name) => JSON.parse(readFileSync(join(here, "../../docs/wire", `${name}.json`), "utf8"));

test("what a server exports has the types that are declared", () => {
  const { exports: told } = vectors("exports");
  const typed = told.map((/** @type {any} */ { document }, /** @type {number} */ n) => `export const one${n}: ExportDocument = ${JSON.stringify(document)};`);
  assert.ok(typed.length > 5);
  assert.equal(compiled(['import type { ExportDocument } from "@privateer/client";', ...typed].join("\n")), "");
});

/** @param {string} page */
const examples = (page) => [...readFileSync(join(here, page), "utf8").matchAll(/```js\n(.*?)```/gs)].map(([, text]) => text);

for (const [name, way] of Object.entries(WAYS)) {
  test(`a program in TypeScript has types: ${name}`, () => {
    assert.equal(compiled(PROGRAM, way), "");
  });

  test(`the README's examples compile: ${name}`, () => {
    const found = examples("README.md");
    assert.equal(found.length, 2);
    for (const example of found) assert.equal(compiled(example, way), "");
  });

  test(`an import that this package has not is caught: ${name}`, () => {
    const [example] = examples("README.md");
    assert.match(compiled(example.replace("@privateer/client/node", "@privateer/client"), way), /TS2305.*FileLedger/);
  });
}

for (const [right, wrong] of [
  ["session.report(1)", "session.report('good')"],
  ["epsilon: 2", "epsilon: 'two'"],
  ['experiments: ["offers"]', "outcomes: {}"],
  ["policy.choose({ age: 41 }, 7)", "policy.choose({ age: 41 }, 'seven')"],
  ["choose<number[]>()", "choose<boolean>()"],
  ["part.bins.length", "part.boxes.length"],
  ['part.kind === "rules"', 'part.kind === "laws"'],
]) {
  test(`a mistake is caught: ${wrong}`, () => {
    assert.match(compiled(PROGRAM.replace(right, wrong)), /error TS/);
  });
}
