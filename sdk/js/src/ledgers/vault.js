// @ts-check
/** Encryption of what a device keeps about its person: whoever has the ledger without its key cannot read it. */

import { concatBytes, json, utf8 } from "../bytes.js";
import { PrivateerError, invalid } from "../errors.js";
import { fillRandom, getSubtleCrypto } from "../platform.js";

const NONCE_SIZE = 12;
/** The longest text of a number in JSON, and the comma after it. */
const DIGITS = 26;

/** @typedef {import("../participation.js").Choice} Choice */

/** A key that encrypts choices. @returns {Promise<CryptoKey>} */
export const newKey = () => getSubtleCrypto().generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt", "decrypt"]);

/**
 * Encrypt a choice, or an arm. The size depends on the publication alone: not on the arm, the context, or what came of it.
 * @param {CryptoKey} key @param {object} value @param {string} label what the result is bound to
 */
export async function lock(key, value, label) {
  let numbers = 0;
  const bare = JSON.stringify(value, (_, entry) => (entry === null || typeof entry === "number" ? (numbers++, 0) : entry));
  const plain = utf8(JSON.stringify(value).padEnd(bare.length + DIGITS * numbers));
  const nonce = fillRandom(new Uint8Array(NONCE_SIZE));
  return concatBytes(nonce, new Uint8Array(await getSubtleCrypto().encrypt(parameters(nonce, label), key, plain)));
}

/** Decrypt a choice, or an arm. @param {CryptoKey} key @param {Uint8Array<ArrayBuffer>} body @param {string} label @returns {Promise<any>} */
export async function unlock(key, body, label) {
  try {
    return json(new Uint8Array(await getSubtleCrypto().decrypt(parameters(body.slice(0, NONCE_SIZE), label), key, body.slice(NONCE_SIZE))));
  } catch (error) {
    if (error instanceof PrivateerError) throw error;
    throw invalid(`the choice that the ledger keeps cannot be read: put its key back, or erase it by ledger.forget("${label}")`, "key");
  }
}

/** @param {Uint8Array<ArrayBuffer>} iv @param {string} label */
const parameters = (iv, label) => ({ name: "AES-GCM", iv, additionalData: utf8(label) });
