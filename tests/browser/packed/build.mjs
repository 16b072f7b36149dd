/** What a site builds of pages: with Vite, for browsers, and for a server that renders one of them. */
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { build } from "vite";

const common = { configFile: false, logLevel: "warn", esbuild: { jsx: "automatic" } };
const pages = { mounts: "mounts.jsx", tab: "tab.js", hydrated: "hydrated.jsx", browser: "browser.jsx" };
const page = (script, body) => `<!doctype html><html lang="en"><meta charset="utf-8"><title>Offers</title>
<div id="root">${body}</div><script type="module" src="/${script}"></script></html>`;

await build({ ...common, build: { ssr: "server.jsx", outDir: "server", emptyOutDir: true } });
const server = await import(pathToFileURL("server/server.js").href);
const rendered = server.page();
for (const [name, script] of Object.entries(pages)) {
  writeFileSync(`${name}.html`, page(script, /hydrate/.test(readFileSync(script, "utf8")) ? rendered : ""));
}
const input = Object.keys(pages).map((name) => `${name}.html`);
// What no bundler has seen.
writeFileSync("plain.html", page("plain.js", ""));
await build({ ...common, build: { outDir: "site", minify: false, rollupOptions: { input } } });
