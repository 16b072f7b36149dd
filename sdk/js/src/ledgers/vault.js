// @ts-check
/** Encryption of what a device keeps about its person: whoever has the ledger without its key cannot read it. */

import { joined } from "../bytes.js";
import { PrivateerError, invalid } from "../errors.js";
import { random, subtle } from "../platform.js";

const NONCE_SIZE = 12;
/** The longest text of a number in JSON, and the comma after it. */
const DIGITS = 26;

/** @typedef {import("../participation.js").Choice} Choice */

/** A key that encrypts choices. @returns {Promise<CryptoKey>} */
export const newKey = () => subtle().generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt", "decrypt"]);

/**
 * Encrypt a choice. The size depends on the publication alone: not on the arm, the context, or what came of it.
 * @param {CryptoKey} key @param {Choice} choice @param {string} label the experiment, which the result is bound to
 */
export function lock(key, choice, label) {
  const bare = JSON.stringify({ ...choice, columns: [], values: [], slot: 0, arm: 0, version: 0, due: 0, period: 0, window: 0, offset: 0, numbers: [] });
  const room = bare.length + DIGITS * (choice.columns.length + choice.values.length + (choice.numbers?.length ?? 0) + 7);
  return locked(key, choice, room, label);
}

/** Encrypt the arm that a person saw last; the size does not tell it. @param {CryptoKey} key @param {import("./arm.js").KeptArm} arm
 * @param {string} label the experiment, which the result is bound to */
export function lockArm(key, arm, label) {
  const bare = JSON.stringify({ ...arm, coins: null, final: 0, arm: null, period: 0 });
  return locked(key, arm, bare.length + 4 * DIGITS, label);
}

/** @param {CryptoKey} key @param {object} value @param {number} room for its text @param {string} label */
async function locked(key, value, room, label) {
  const nonce = random(new Uint8Array(NONCE_SIZE));
  const plain = new TextEncoder().encode(JSON.stringify(value).padEnd(room));
  return joined(nonce, new Uint8Array(await subtle().encrypt(parameters(nonce, label), key, plain)));
}

/** Decrypt a choice, or an arm. @param {CryptoKey} key @param {Uint8Array<ArrayBuffer>} body @param {string} label @returns {Promise<any>} */
export async function unlock(key, body, label) {
  try {
    const plain = await subtle().decrypt(parameters(body.slice(0, NONCE_SIZE), label), key, body.slice(NONCE_SIZE));
    return JSON.parse(new TextDecoder().decode(plain));
  } catch (error) {
    if (error instanceof PrivateerError) throw error;
    throw invalid(`the choice that the ledger keeps cannot be read: put its key back, or erase it by ledger.forget("${label}")`, "key");
  }
}

/** @param {Uint8Array<ArrayBuffer>} iv @param {string} label */
const parameters = (iv, label) => ({ name: "AES-GCM", iv, additionalData: new TextEncoder().encode(label) });
