// @ts-check
/** The hook where a server renders: no error, no request, and the default. Browsers are in tests/browser/test_react_and_tabs.py. */

import assert from "node:assert/strict";
import { StrictMode, createElement } from "react";
import { renderToString } from "react-dom/server";
import { test } from "node:test";

import { Client } from "@privateer/client";
import { useArm } from "@privateer/client/react";

test("a server renders the default, and asks nobody", async (t) => {
  const asked = t.mock.method(globalThis, "fetch", () => assert.fail("something was asked"));
  /** @type {import("@privateer/client/react").ShownArm[]} */
  const seen = [];
  const client = new Client("https://learn.example", { limits: { epsilon: 4 } });
  /** @param {{context: Record<string, any> | null}} props */
  function Offer({ context }) {
    const shown = useArm(client, "offers", context, { default: "delivery" });
    seen.push(shown);
    return shown.name;
  }
  const offers = [{ visits: 3 }, null].map((context, key) => createElement(Offer, { key, context }));
  assert.match(renderToString(createElement(StrictMode, null, ...offers)), /^delivery(<!-- -->)?delivery$/);
  for (const shown of seen) assert.deepEqual([shown.ready, shown.fallback, await shown.report(1)], [false, null, "not-requested"]);
  assert.equal(asked.mock.callCount(), 0);
});
