/** Plain modules, as they are in the package: an arm, and a report. */
import { Client, missing } from "/privateer/index.js";

const client = new Client(new URLSearchParams(location.search).get("server"), { limits: { epsilon: 4 }, ledger: "plain" });
const shown = await client.arm("offers", { visits: 3, premium: false }, { default: "the default", within: 20 });
globalThis.found = [await missing(), shown.fallback, await shown.report(1)];
