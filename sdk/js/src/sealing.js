// @ts-check
/** HPKE (RFC 9180), base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM. Nothing here opens. */

import { concatBytes, utf8 } from "./bytes.js";
import { malformed, unsupported } from "./errors.js";
import { getSubtleCrypto } from "./platform.js";

const KEM = concatBytes(utf8("KEM"), [0, 0x20]);
const SUITE = concatBytes(utf8("HPKE"), [0, 0x20, 0, 1, 0, 1]);
const VERSION = utf8("HPKE-v1");
const NOTHING = new Uint8Array(0);

/** @param {Uint8Array<ArrayBuffer>} key @param {Uint8Array<ArrayBuffer>} data */
async function hmac(key, data) {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const imported = await getSubtleCrypto().importKey("raw", key.length ? key : new Uint8Array(32), algorithm, false, ["sign"]);
  return new Uint8Array(await getSubtleCrypto().sign("HMAC", imported, data));
}

/** @param {Uint8Array<ArrayBuffer>} salt @param {Uint8Array<ArrayBuffer>} suite @param {string} label @param {Uint8Array<ArrayBuffer>} secret */
const extract = (salt, suite, label, secret) => hmac(salt, concatBytes(VERSION, suite, utf8(label), secret));

/** @param {Uint8Array<ArrayBuffer>} key @param {Uint8Array<ArrayBuffer>} suite @param {string} label @param {Uint8Array<ArrayBuffer>} info @param {number} length */
async function expand(key, suite, label, info, length) {
  const block = await hmac(key, concatBytes([length >> 8, length & 255], VERSION, suite, utf8(label), info, [1]));
  return block.slice(0, length);
}

/** @returns {Promise<CryptoKeyPair>} */
async function generateKeys() {
  try {
    return /** @type {CryptoKeyPair} */ (await getSubtleCrypto().generateKey({ name: "X25519" }, true, ["deriveBits"]));
  } catch {
    throw unsupported("no X25519 here, for sealing: Chromium 133, Firefox 130, Safari 17 and Node 20 have it", "X25519");
  }
}

/**
 * Seal a report; the result is 48 bytes longer.
 * @param {Uint8Array<ArrayBuffer>} plaintext @param {Uint8Array<ArrayBuffer>} publicKey @param {Uint8Array<ArrayBuffer>} info
 * @param {CryptoKeyPair} [ephemeral] for tests; by default a fresh one
 */
export async function seal(plaintext, publicKey, info, ephemeral) {
  const keys = ephemeral ?? (await generateKeys());
  const encapsulated = new Uint8Array(await getSubtleCrypto().exportKey("raw", keys.publicKey));
  const shared = await agreeOnKey(keys.privateKey, publicKey);
  const prk = await extract(NOTHING, KEM, "eae_prk", shared);
  const secret = await expand(prk, KEM, "shared_secret", concatBytes(encapsulated, publicKey), 32);
  const psk = await extract(NOTHING, SUITE, "psk_id_hash", NOTHING);
  const context = concatBytes([0], psk, await extract(NOTHING, SUITE, "info_hash", info));
  const schedule = await extract(secret, SUITE, "secret", NOTHING);
  const raw = await expand(schedule, SUITE, "key", context, 16);
  const iv = await expand(schedule, SUITE, "base_nonce", context, 12);
  const key = await getSubtleCrypto().importKey("raw", raw, "AES-GCM", false, ["encrypt"]);
  return concatBytes(encapsulated, new Uint8Array(await getSubtleCrypto().encrypt({ name: "AES-GCM", iv }, key, plaintext)));
}

/** @param {CryptoKey} privateKey @param {Uint8Array<ArrayBuffer>} publicKey */
async function agreeOnKey(privateKey, publicKey) {
  try {
    const other = await getSubtleCrypto().importKey("raw", publicKey, { name: "X25519" }, false, []);
    const bits = new Uint8Array(await getSubtleCrypto().deriveBits({ name: "X25519", public: other }, privateKey, 256));
    if (bits.some((byte) => byte !== 0)) return bits;
  } catch {
    // It is no point that can be sealed to, as below.
  }
  throw malformed("the round's public key cannot be sealed to");
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
export const sha256 = async (bytes) => new Uint8Array(await getSubtleCrypto().digest("SHA-256", bytes));
