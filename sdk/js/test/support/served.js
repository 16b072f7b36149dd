// @ts-check
/** A server for devices in tests. */

import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { createServer } from "node:http";

import { PrivateerError } from "../../src/index.js";
import { concatBytes } from "../../src/bytes.js";
import { encodeEntry } from "../../src/log.js";
import { leafHash } from "../../src/merkle.js";
import { decode, encode } from "../../src/msgpack.js";
import { readPublication } from "../../src/publication.js";

/** @param {Uint8Array[]} parts */
const sha = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();

/** The root of leaves, and the path of one of them. @param {Buffer[]} leaves @param {number} index @returns {[Buffer, Buffer[]]} */
function tree(leaves, index) {
  if (leaves.length === 1) return [leaves[0], []];
  const half = 2 ** (Math.ceil(Math.log2(leaves.length)) - 1);
  const isLeft = index < half;
  const [left, leftPath] = tree(leaves.slice(0, half), isLeft ? index : 0);
  const [right, rightPath] = tree(leaves.slice(half), isLeft ? 0 : index - half);
  return [sha(Buffer.from([1]), left, right), isLeft ? [...leftPath, right] : [...rightPath, left]];
}

/** A server's key, and a log of its publications. */
export class Notary {
  constructor(origin = "privateer/log/0011223344556677") {
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    this.origin = origin;
    this.private = privateKey;
    this.key = Buffer.from(publicKey.export({ format: "jwk" }).x ?? "", "base64url");
    /** @type {Buffer[]} */
    this.leaves = [];
  }

  /** @param {Uint8Array} publication */
  signed(publication) {
    const text = Buffer.concat([Buffer.from("privateer/publication/1\0"), sha(publication)]);
    return `${this.key.toString("hex")}.${sign(null, text, this.private).toString("hex")}`;
  }

  /** @param {Uint8Array} publication */
  async proof(publication) {
    const { round, digest } = await readPublication(new Uint8Array(publication));
    const leaf = Buffer.from(await leafHash(encodeEntry(round.experiment, round.version, digest)));
    if (!this.leaves.some((one) => one.equals(leaf))) this.leaves.push(leaf);
    const index = this.leaves.findIndex((one) => one.equals(leaf));
    const [root, path] = tree(this.leaves, index);
    const text = `${this.origin}\n${this.leaves.length}\n${root.toString("base64")}\n`;
    const id = sha(Buffer.from(`${this.origin}\n`), Buffer.from([1]), this.key).subarray(0, 4);
    const stamp = Buffer.concat([id, sign(null, Buffer.from(text), this.private)]).toString("base64");
    const told = { index, inclusion: Buffer.concat(path).toString("base64"), leaves: Buffer.concat(this.leaves).toString("base64") };
    return { head: `${text}\n— ${this.origin} ${stamp}\n`, ...told, start: 0, peaks: "", consistency: "" };
  }
}

/**
 * A server that publishes, keeps what it gets, and answers what it is told.
 * @param {Uint8Array} publication @param {(at: Served) => Promise<void>} use
 */
export async function serving(publication, use) {
  /** @type {Served} */
  const at = {
    url: "", publication, bodies: [], answers: [], asks: "published", away: false, gone: false, notary: new Notary(), proof: (proof) => proof,
    keys: null, sign: null, requests: [],
  };
  const server = createServer(async (request, response) => {
    if (at.away) return void request.socket.destroy();
    if (at.gone) return void response.writeHead(410).end('{"type": "urn:privateer:problem:deleted"}');
    at.requests.push({ url: request.url ?? "", headers: request.headers });
    if (request.url?.startsWith("/log/proof")) {
      response.writeHead(200).end(JSON.stringify(await at.proof(await at.notary.proof(at.publication))));
      return;
    }
    if (request.url?.endsWith("/token-keys")) {
      response.writeHead(at.keys === null ? 404 : 200, { "content-type": "application/private-token-issuer-directory" }).end(at.keys ?? "{}");
      return;
    }
    if (request.method === "GET") {
      response.writeHead(200, { "content-type": "application/msgpack", "privateer-asks": at.asks, "privateer-signed": at.notary.signed(at.publication) }).end(at.publication);
      return;
    }
    /** @type {Buffer[]} */
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk)).on("end", () => {
      if (request.url?.endsWith("/tokens")) {
        const told = at.sign?.(Buffer.concat(chunks), request.headers) ?? [404, '{"type": "urn:privateer:problem:not-found"}'];
        response.writeHead(Array.isArray(told) ? told[0] : 200).end(Array.isArray(told) ? told[1] : told);
        return;
      }
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

/** @typedef {{url: string, publication: Uint8Array, bodies: string[], answers: [number, string][], asks: string, away: boolean, gone: boolean,
 *   notary: Notary, proof: (proof: any) => any, keys: string | null, requests: {url: string, headers: Record<string, any>}[],
 *   sign: ((request: Buffer, headers: Record<string, any>) => Buffer | [number, string]) | null}} Served */

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
  // In the policy the version is a number after its name, which is small at first.
  const at = Buffer.from(policy).indexOf("version") + "version".length;
  return encode([round, concatBytes([...Buffer.from(JSON.stringify(told))]), concatBytes(policy.slice(0, at), encode(version), policy.slice(at + 1))]);
}
