// Draws policies as the dashboard does, outside a browser: FILE, a JSON object of `{policy, answer, spec}` by any names.
// Prints of each, as JSON, the text of the drawing, and how many bins are on its map.

import { readFileSync } from "node:fs";

import { placed } from "../../dashboard/support/page.mjs";

const { BinsView } = await import("../../../server/privateer_server/dashboard/bins.mjs");
const { render } = await import("../../../server/privateer_server/dashboard/render.mjs");

function drawn({ policy, answer, spec }) {
  const about = { id: "policy", width: 800, options: spec.experiment.arms, features: spec.context.features, answer, map: new BinsView() };
  const place = placed(render(policy.shows, about)).open();
  const outlines = place.find("arm").map(({ attributes }) => attributes.d ?? "");
  return { text: place.textContent, bins: outlines.join("").split("z").length - 1 };
}

const published = JSON.parse(readFileSync(process.argv[2], "utf8"));
console.log(JSON.stringify(Object.fromEntries(Object.entries(published).map(([name, one]) => [name, drawn(one)]))));
