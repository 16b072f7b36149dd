// @ts-check
/** A server for devices in tests. */

import assert from "node:assert/strict";
import { createServer } from "node:http";

import { PrivateerError } from "../../src/index.js";
import { joined } from "../../src/bytes.js";
import { decode, encode } from "../../src/msgpack.js";

/**
 * A server that publishes, keeps what it gets, and answers what it is told.
 * @param {Uint8Array} publication @param {(at: Served) => Promise<void>} use
 */
export async function serving(publication, use) {
  /** @type {Served} */
  const at = { url: "", publication, bodies: [], answers: [], asks: "published", away: false };
  const server = createServer((request, response) => {
    if (at.away) return void request.socket.destroy();
    if (request.method === "GET") {
      response.writeHead(200, { "content-type": "application/msgpack", "privateer-asks": at.asks }).end(at.publication);
      return;
    }
    /** @type {Buffer[]} */
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk)).on("end", () => {
      at.bodies.push(Buffer.concat(chunks).toString("hex"));
      const [status, slug] = at.answers.shift() ?? [202, ""];
      response.writeHead(status).end(JSON.stringify(slug ? { type: `urn:privateer:problem:${slug}` } : { accepted: 1 }));
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null)));
  at.url = `http://127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}`;
  try {
    await use(at);
  } finally {
    server.close();
  }
}

/** @typedef {{url: string, publication: Uint8Array, bodies: string[], answers: [number, string][], asks: string, away: boolean}} Served */

/** @param {Promise<any>} promise @param {string} type */
export const rejects = (promise, type) =>
  assert.rejects(promise, (error) => error instanceof PrivateerError && error.type === type);


/** A clock that tests set. @param {number} start */
export function clockAt(start) {
  const at = { time: start };
  return { at, now: () => at.time, monotonic: () => at.time };
}

/**
 * A publication of another version, and with another `[experiment]`.
 * @param {Uint8Array} body @param {Record<string, any>} experiment @param {number} version
 */
export function changed(body, experiment, version = 4) {
  const [round, spec, policy] = decode(new Uint8Array(body));
  const told = JSON.parse(Buffer.from(spec).toString());
  Object.assign(told.experiment, experiment);
  round[0] = told.experiment.name;
  round[1] = version;
  // In the policy the version is a small number after its name.
  const at = Buffer.from(policy).indexOf("version") + "version".length;
  return encode([round, joined([...Buffer.from(JSON.stringify(told))]), joined(policy.slice(0, at), [version], policy.slice(at + 1))]);
}
