/** Encryption of what a device keeps about its person: whoever has the ledger without its key cannot read it. */
export type Choice = import("../participation.js").Choice;
/** @typedef {import("../participation.js").Choice} Choice */
/** A key that encrypts choices. @returns {Promise<CryptoKey>} */
export declare const newKey: () => Promise<CryptoKey>;
/**
 * Encrypt a choice. The size depends on the publication alone: not on the arm, the context, or what came of it.
 * @param {CryptoKey} key @param {Choice} choice @param {string} label the experiment, which the result is bound to
 */
export declare function lock(key: CryptoKey, choice: Choice, label: string): Promise<Uint8Array<ArrayBuffer>>;
/** Decrypt a choice. @param {CryptoKey} key @param {Uint8Array<ArrayBuffer>} body @param {string} label @returns {Promise<Choice>} */
export declare function unlock(key: CryptoKey, body: Uint8Array<ArrayBuffer>, label: string): Promise<Choice>;
