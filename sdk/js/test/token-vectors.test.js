// @ts-check
/** Upload tokens, byte by byte: drawn, blinded and finished as the vectors of docs/wire say. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { hex, unhex } from "../src/bytes.js";
import { PrivateerError } from "../src/errors.js";
import { sha256 } from "../src/sealing.js";
import { findInverse } from "../src/tokens/blind-rsa.js";
import { readDirectory, makeTokenKey } from "../src/tokens/keys.js";
import { formatAuthorization, encodeChallenge, drawToken, finishToken, serverName } from "../src/tokens/token.js";
import { vectors } from "./support/vectors.js";

/** @type {any} */
const VECTORS = vectors("tokens");

const key = () => makeTokenKey(unhex(VECTORS.keys[0].key), 1000, 2000);
const known = (/** @type {any} */ one) => ({ nonce: unhex(one.nonce), salt: unhex(one.salt), inverse: unhex(one.inverse) });

test("names of services", () => {
  for (const { url, name } of VECTORS.names) assert.equal(serverName(url), name);
});

test("challenges", async () => {
  for (const one of VECTORS.challenges) {
    const made = await encodeChallenge(one.issuer, one.origin, one.experiment);
    assert.deepEqual([hex(made), hex(await sha256(made))], [one.challenge, one.digest]);
  }
});

test("requests, signatures and tokens", async (t) => {
  for (const one of VECTORS.tokens) {
    await t.test(one.name, async () => {
      const pending = await drawToken(unhex(one.digest), await key(), known(one));
      assert.equal(hex(pending.request), one.request);
      assert.equal(hex(pending.inverse), one.inverse);
      const token = await finishToken(pending, await key(), unhex(one.response));
      assert.equal(hex(token), one.token);
      assert.equal(formatAuthorization(token), one.authorization);
    });
  }
});

test("an answer of which no token comes", async () => {
  const [one] = VECTORS.tokens;
  const pending = await drawToken(unhex(one.digest), await key(), known(one));
  for (const { name, response } of VECTORS.answers) {
    await assert.rejects(finishToken(pending, await key(), unhex(response)), (error) => error instanceof PrivateerError, name);
  }
});

test("keys", async () => {
  for (const one of VECTORS.keys) {
    const made = makeTokenKey(unhex(one.key), 0, 1);
    if (one.id === null) await assert.rejects(made, (error) => error instanceof PrivateerError || error instanceof SyntaxError, one.name);
    else assert.equal(hex((await made).id), one.id);
  }
});

test("directories", async () => {
  for (const one of VECTORS.directories) {
    const read = readDirectory(new Uint8Array(Buffer.from(one.body)), one.experiment);
    if (one.issuer === null) await assert.rejects(read, (error) => error instanceof PrivateerError || error instanceof SyntaxError, one.name);
    else {
      const { issuer, keys } = await read;
      assert.deepEqual([issuer, keys.map(({ notBefore, notAfter }) => [notBefore, notAfter])], [one.issuer, one.keys], one.name);
    }
  }
});

test("tokens are drawn apart, and blinded by any number below the modulus", async () => {
  const drawn = await Promise.all(Array.from({ length: 20 }, async () => drawToken(new Uint8Array(32), await key())));
  for (const part of /** @type {const} */ (["input", "request", "inverse"])) {
    assert.equal(new Set(drawn.map((one) => hex(one[part]))).size, 20);
  }
  const { n } = await key();
  const factors = drawn.map(({ inverse }) => findInverse(BigInt(`0x${hex(inverse)}`), n) ?? -1n);
  assert.ok(factors.every((one) => one > 0n && one < n));
  // Of 20 uniform factors all are in the same half in fewer than one run of 500,000.
  assert.equal(new Set(factors.map((one) => one > n / 2n)).size, 2);
});
