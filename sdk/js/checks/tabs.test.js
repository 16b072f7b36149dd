// @ts-check
/** Two tabs of a person, which share a database of the browser and join at once: one arm. */

import "fake-indexeddb/auto";
import assert from "node:assert/strict";
import { IDBFactory } from "fake-indexeddb";
import { test } from "node:test";

import { Client } from "@privateer/client";
import { serving } from "../test/support/served.js";
import { vectors } from "../test/support/vectors.js";

const LOCAL = Buffer.from(vectors("publications")[0].publication, "hex");
const CONTEXT = { x1: 0.3, x2: 0.9 };
const PEOPLE = 200;

/** @typedef {(client: Client) => Promise<string>} Way */
/** @type {Record<string, Way>} */
const WAYS = {
  join: async (client) => (await client.join("test")).choose(CONTEXT),
  arm: async (client) => (await client.arm("test", CONTEXT, { default: "", within: 10 })).name,
};

for (const [name, way] of Object.entries(WAYS)) {
  test(`no two tabs of ${PEOPLE} people differ: ${name}`, () =>
    serving(LOCAL, async (at) => {
      /** @param {string[]} databases @returns {Promise<boolean>} */
      async function differ(databases) {
        globalThis.indexedDB = new IDBFactory();
        const [one, other] = await Promise.all(databases.map((ledger) => way(new Client(at.url, { ledger }))));
        return one !== other;
      }
      let [differing, apart] = [0, 0];
      for (let person = 0; person < PEOPLE; person++) {
        differing += Number(await differ(["tabs", "tabs"]));
        if (person < 20) apart += Number(await differ(["tabs", "other"]));
      }
      assert.equal(differing, 0);
      assert.ok(apart > 0, "what is not shared would be seen"); // by chance not, 3^-20
    }));
}
