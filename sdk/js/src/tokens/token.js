// @ts-check
/**
 * One-use upload tokens: Privacy Pass tokens of type 0x0002 (RFC 9577 and RFC 9578). A token is for one experiment at one
 * endpoint. Its challenge says so, and the device makes it itself, so that nobody can mark a device by it.
 */

import { concatBytes, utf8 } from "../bytes.js";
import { fillRandom } from "../platform.js";
import { sha256 } from "../sealing.js";
import { base64url } from "./base64url.js";
import { blind, finalize } from "./blind-rsa.js";

export const SIGNATURE_SIZE = 256;
const TYPE = [0, 2];
const NONCE_SIZE = 32;
const DIGEST_SIZE = 32;

/** What is to be signed, what the issuer gets (the same bytes each time), and what takes the blinding off its answer.
 * @typedef {{input: Uint8Array<ArrayBuffer>, request: Uint8Array<ArrayBuffer>, inverse: Uint8Array<ArrayBuffer>}} PendingToken */

/** @typedef {import("./keys.js").TokenKey} TokenKey */

/** @param {string} name */
function encodeName(name) {
  const bytes = utf8(name);
  return concatBytes([bytes.length >> 8, bytes.length & 255], bytes);
}

/** What a token is for: the names of issuer and endpoint, and the experiment. @param {string} issuer @param {string} origin @param {string} experiment */
export async function encodeChallenge(issuer, origin, experiment) {
  const context = await sha256(utf8(`privateer/token/1\0${experiment}`));
  return concatBytes(TYPE, encodeName(issuer), [context.length], context, encodeName(origin));
}

/** The name of a service at an address, as challenges have it: host, and port unless it is 443. @param {string} url */
export function serverName(url) {
  const { protocol, hostname, port } = new URL(url);
  const listens = port || (protocol === "https:" ? "443" : "80");
  return listens === "443" ? hostname : `${hostname}:${listens}`;
}

/** Draw a token, and blind it. @param {Uint8Array<ArrayBuffer>} digest of the challenge @param {TokenKey} key
 * @param {{nonce?: Uint8Array<ArrayBuffer>, salt?: Uint8Array<ArrayBuffer>, inverse?: Uint8Array}} [known] randomness that tests know
 * @returns {Promise<PendingToken>} */
export async function drawToken(digest, key, { nonce = fillRandom(new Uint8Array(NONCE_SIZE)), ...known } = {}) {
  const input = concatBytes(TYPE, nonce, digest, key.id);
  const { message, inverse } = await blind(key.n, input, known);
  return { input, request: concatBytes(TYPE, key.id.slice(-1), message), inverse };
}

/** Id of the key that shall sign a token. @param {{input: Uint8Array<ArrayBuffer>}} token */
export const keyIdOf = ({ input }) => input.slice(-DIGEST_SIZE);

/** Digest of the challenge that a token is for. @param {Uint8Array<ArrayBuffer>} token or what is to be signed of it */
export const digestOf = (token) => token.slice(TYPE.length + NONCE_SIZE, TYPE.length + NONCE_SIZE + DIGEST_SIZE);

/** What an endpoint knows a token by: the digest of its challenge, and the id of its key. @param {Uint8Array} token */
export const tokenMark = (token) => token.slice(TYPE.length + NONCE_SIZE, TYPE.length + NONCE_SIZE + 2 * DIGEST_SIZE);

/** The token that the issuer's answer makes. @param {PendingToken} pending @param {TokenKey} key @param {Uint8Array} signed */
export const finishToken = async ({ input, inverse }, key, signed) => concatBytes(input, await finalize(key.n, input, signed, inverse));

/** The header that spends a token. @param {Uint8Array} token */
export const formatAuthorization = (token) => `PrivateToken token="${base64url(token)}"`;
