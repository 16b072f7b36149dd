// @ts-check
/**
 * Blind RSA signatures, RSABSSA-SHA384-PSS-Deterministic (RFC 9474, with the encoding of RFC 8017, section 9.1.1): what
 * everybody may do who has the public key, whose exponent is 65537. Whoever has a message signed draws the blinding, so the
 * signer learns nothing about message and signature. BigInt takes time that depends on its values. What is secret here is
 * drawn anew for each message, and the values that meet it are random.
 */

import { hex, concatBytes, unhex } from "../bytes.js";
import { malformed } from "../errors.js";
import { fillRandom, getSubtleCrypto } from "../platform.js";
import { base64url } from "./base64url.js";

const [HASH_SIZE, SALT_SIZE] = [48, 48];
const EXPONENT = 65_537n;

/** @param {Uint8Array} bytes @returns {bigint} */
export const integer = (bytes) => BigInt(`0x${hex(bytes) || 0}`);

/** @param {bigint} value @param {number} size */
const octets = (value, size) => unhex(value.toString(16).padStart(2 * size, "0"));

/** Bits of a modulus. @param {bigint} n */
const bitsOf = (n) => n.toString(2).length;

/** Bytes of a modulus, of a blinded message, and of a signature. @param {bigint} n */
const sizeOf = (n) => Math.ceil(bitsOf(n) / 8);

/** @param {Uint8Array<ArrayBuffer>} bytes */
const sha384 = async (bytes) => new Uint8Array(await getSubtleCrypto().digest("SHA-384", bytes));

/** @param {bigint} base @param {bigint} n */
function raiseToPower(base, n) {
  let [power, square] = [1n, base];
  for (let exponent = EXPONENT; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) power = (power * square) % n;
    square = (square * square) % n;
  }
  return power;
}

/** The inverse of a number by Euclid's algorithm; null if it has a factor of the modulus. @param {bigint} value @param {bigint} n */
export function findInverse(value, n) {
  let [rest, next, factor, other] = [n, value % n, 0n, 1n];
  while (next > 0n) {
    const times = rest / next;
    [rest, next] = [next, rest - times * next];
    [factor, other] = [other, factor - times * other];
  }
  return rest === 1n ? ((factor % n) + n) % n : null;
}

/** A blinding factor and its inverse. @param {bigint} n @returns {[bigint, bigint]} */
function drawBlinding(n) {
  for (;;) {
    const factor = integer(fillRandom(new Uint8Array(sizeOf(n))));
    const inverse = factor > 0n && factor < n ? findInverse(factor, n) : null;
    if (inverse !== null) return [factor, inverse];
  }
}

/** MGF1 of a seed. @param {Uint8Array<ArrayBuffer>} seed @param {number} size */
async function generateMask(seed, size) {
  const count = Math.ceil(size / HASH_SIZE);
  const blocks = await Promise.all(Array.from({ length: count }, (_, place) => sha384(concatBytes(seed, [0, 0, place >> 8, place & 255]))));
  return concatBytes(...blocks).slice(0, size);
}

/** A message in so many bits, by EMSA-PSS. @param {Uint8Array<ArrayBuffer>} message @param {Uint8Array<ArrayBuffer>} salt @param {number} bits */
export async function encodePss(message, salt, bits) {
  const digest = await sha384(concatBytes(new Uint8Array(8), await sha384(message), salt));
  const size = Math.ceil(bits / 8) - HASH_SIZE - 1;
  const block = concatBytes(new Uint8Array(size - salt.length - 1), [1], salt);
  const hidden = await generateMask(digest, size);
  const masked = block.map((byte, place) => byte ^ hidden[place]);
  masked[0] &= 255 >> (8 * Math.ceil(bits / 8) - bits);
  return concatBytes(masked, digest, [0xbc]);
}

/**
 * A message that is ready to be signed, and what takes the blinding off the answer: a secret until then.
 * @param {bigint} n the modulus @param {Uint8Array<ArrayBuffer>} message
 * @param {{salt?: Uint8Array<ArrayBuffer>, inverse?: Uint8Array}} [known] randomness that tests know
 */
export async function blind(n, message, { salt = fillRandom(new Uint8Array(SALT_SIZE)), inverse } = {}) {
  const encoded = integer(await encodePss(message, salt, bitsOf(n) - 1));
  const [factor, back] = inverse ? [findInverse(integer(inverse), n), integer(inverse)] : drawBlinding(n);
  // As likely as guessing the private key.
  if (factor === null || findInverse(encoded, n) === null) throw malformed("the message has a factor of the modulus");
  return { message: octets((encoded * raiseToPower(factor, n)) % n, sizeOf(n)), inverse: octets(back, sizeOf(n)) };
}

/**
 * The signature of a message, of what the signer answered.
 * @param {bigint} n @param {Uint8Array<ArrayBuffer>} message @param {Uint8Array} signed @param {Uint8Array} inverse
 */
export async function finalize(n, message, signed, inverse) {
  if (signed.length === sizeOf(n)) {
    const signature = octets((integer(signed) * integer(inverse)) % n, sizeOf(n));
    if (await verifies(n, message, signature)) return signature;
  }
  throw malformed("the issuer did not sign with the key that it shows everybody");
}

/** Whether a signature is one of the message by this key. @param {bigint} n @param {Uint8Array<ArrayBuffer>} message @param {Uint8Array<ArrayBuffer>} signature */
export async function verifies(n, message, signature) {
  const unpadded = (/** @type {bigint} */ value) => base64url(octets(value, sizeOf(value))).replaceAll("=", "");
  const key = { kty: "RSA", alg: "PS384", n: unpadded(n), e: unpadded(EXPONENT) };
  const imported = await getSubtleCrypto().importKey("jwk", key, { name: "RSA-PSS", hash: "SHA-384" }, false, ["verify"]);
  return getSubtleCrypto().verify({ name: "RSA-PSS", saltLength: SALT_SIZE }, imported, signature, message);
}
