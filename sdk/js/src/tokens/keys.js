// @ts-check
/** The public keys of an issuer, and the document that shows them: RFC 9578's directory, by experiment. */

import { concatBytes, json, areEqualBytes, unhex } from "../bytes.js";
import { requireKnown } from "../errors.js";
import { isWhole } from "../numbers.js";
import { sha256 } from "../sealing.js";
import { unbase64url } from "./base64url.js";
import { integer } from "./blind-rsa.js";

export const DIRECTORY = "application/private-token-issuer-directory";
const TYPE = 2;
const SIZE = 256;
/** A SubjectPublicKeyInfo up to the modulus, and after it: RSASSA-PSS with SHA-384 and 48 bytes of salt, exponent 65537. */
const HEAD = unhex(
  "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108" +
    "300b0609608648016503040202a2030201300382010f003082010a0282010100",
);
const TAIL = unhex("0203010001");

/** @typedef {{encoded: Uint8Array<ArrayBuffer>, n: bigint, id: Uint8Array<ArrayBuffer>, notBefore: number, notAfter: number}} TokenKey */

/** A key that signs tokens. @param {Uint8Array<ArrayBuffer>} encoded @param {number} notBefore @param {number} notAfter @returns {Promise<TokenKey>} */
export async function makeTokenKey(encoded, notBefore, notAfter) {
  const modulus = encoded.slice(HEAD.length, HEAD.length + SIZE);
  // A modulus of 2,048 bits begins with a one.
  requireKnown(areEqualBytes(encoded, concatBytes(HEAD, modulus, TAIL)) && modulus.length === SIZE && modulus[0] >= 128, "token-key");
  requireKnown(isWhole(notBefore, 0) && isWhole(notAfter, notBefore + 1), "not-after");
  return { encoded, n: integer(modulus), id: await sha256(encoded), notBefore, notAfter };
}

/** Whether tokens of a key count now. @param {TokenKey} key @param {number} now */
export const isValid = ({ notBefore, notAfter }, now) => notBefore <= now && now < notAfter;

/**
 * Whose keys a document shows, and those of an experiment, the newest first.
 * @param {Uint8Array<ArrayBuffer>} body @param {string} experiment @returns {Promise<{issuer: string, keys: TokenKey[]}>}
 */
export async function readDirectory(body, experiment) {
  const { issuer, experiments } = /** @type {{issuer: string, experiments: Record<string, any>}} */ (json(body));
  requireKnown(typeof issuer === "string" && typeof experiments === "object", "issuer");
  /** @type {any[]} */
  const listed = Object.hasOwn(experiments, experiment) ? experiments[experiment]?.["token-keys"] : [];
  requireKnown(Array.isArray(listed), "token-keys");
  const blindKeys = listed.filter((key) => key?.["token-type"] === TYPE);
  const keys = await Promise.all(blindKeys.map((key) => makeTokenKey(unbase64url(key["token-key"]), key["not-before"], key["not-after"])));
  return { issuer, keys: keys.sort((key, other) => other.notBefore - key.notBefore) };
}
