/** A tab of a person whom the address names: it joins when it, or another tab, is told to. */
import { Client } from "@privateer/client";

const asked = new URLSearchParams(location.search);
const channel = new BroadcastChannel("go");
async function join() {
  const client = new Client(asked.get("server"), { limits: { epsilon: 4 }, ledger: `tab-${asked.get("person")}` });
  const shown = await client.arm("offers", { visits: 3, premium: false }, { default: "the default", within: 20 });
  globalThis.found = shown.name;
}
channel.onmessage = join;
globalThis.go = () => {
  channel.postMessage("go");
  void join();
};
