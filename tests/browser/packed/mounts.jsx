/** People who come one after the other, each with a ledger of their own, to components that React mounts twice. */
import { StrictMode, useEffect } from "react";
import { createRoot } from "react-dom/client";
import { Client } from "@privateer/client";
import { useArm } from "@privateer/client/react";

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function Offer({ client, seen }) {
  const shown = useArm(client, "offers", { visits: 3, premium: false }, { default: "the default", within: 20 });
  useEffect(() => {
    seen.mounts += 1;
  }, []);
  if (shown.ready) seen.arms.add(shown.name);
  else seen.waits += 1;
  seen.report = shown.report;
  return <p>{shown.name}</p>;
}

/** What a person saw in two components, at first and when they came back. */
async function visit(element, clients, seen) {
  for (const times of [1, 2]) {
    const root = createRoot(element);
    root.render(<StrictMode>{clients.map((client, i) => <Offer key={i} client={client} seen={seen} />)}</StrictMode>);
    while (seen.mounts < 4 * times || [...element.children].some(({ innerText }) => innerText === "the default")) await pause(1);
    root.unmount();
  }
}

/** The number of people who were shown so many arms, and what became of the last report. `apart`: the defect that this finds. */
globalThis.visits = async (server, from, count, apart) => {
  const people = {};
  let last;
  for (let person = from; person < from + count; person++) {
    const client = (more) => new Client(server, { limits: { epsilon: 4 }, ledger: `mounted-${person}${more}` });
    last = { arms: new Set(), waits: 0, mounts: 0 };
    const one = client("");
    await visit(document.getElementById("root"), apart ? [one, client("-apart")] : [one, one], last);
    people[last.arms.size] = (people[last.arms.size] ?? 0) + 1;
  }
  return { people, waits: last.waits, reports: [await last.report(1), await last.report(1)] };
};
