/**
 * Blind RSA signatures, RSABSSA-SHA384-PSS-Deterministic (RFC 9474, with the encoding of RFC 8017, section 9.1.1): what
 * everybody may do who has the public key, whose exponent is 65537. Whoever has a message signed draws the blinding, so the
 * signer learns nothing about message and signature. BigInt takes time that depends on its values. What is secret here is
 * drawn anew for each message, and the values that meet it are random.
 */
/** @param {Uint8Array} some @returns {bigint} */
export declare const integer: (some: Uint8Array) => bigint;
/** The inverse of a number by Euclid's algorithm; null if it has a factor of the modulus. @param {bigint} value @param {bigint} n */
export declare function inverseOf(value: bigint, n: bigint): bigint | null;
/** A message in so many bits, by EMSA-PSS. @param {Uint8Array<ArrayBuffer>} message @param {Uint8Array<ArrayBuffer>} salt @param {number} bits */
export declare function encodePss(message: Uint8Array<ArrayBuffer>, salt: Uint8Array<ArrayBuffer>, bits: number): Promise<Uint8Array<ArrayBuffer>>;
/**
 * A message that is ready to be signed, and what takes the blinding off the answer: a secret until then.
 * @param {bigint} n the modulus @param {Uint8Array<ArrayBuffer>} message
 * @param {{salt?: Uint8Array<ArrayBuffer>, inverse?: Uint8Array}} [known] randomness that tests know
 */
export declare function blind(n: bigint, message: Uint8Array<ArrayBuffer>, { salt, inverse }?: {
    salt?: Uint8Array<ArrayBuffer>;
    inverse?: Uint8Array;
}): Promise<{
    message: Uint8Array<ArrayBuffer>;
    inverse: Uint8Array<ArrayBuffer>;
}>;
/**
 * The signature of a message, of what the signer answered.
 * @param {bigint} n @param {Uint8Array<ArrayBuffer>} message @param {Uint8Array} signed @param {Uint8Array} inverse
 */
export declare function finalize(n: bigint, message: Uint8Array<ArrayBuffer>, signed: Uint8Array, inverse: Uint8Array): Promise<Uint8Array<ArrayBuffer>>;
/** Whether a signature is one of the message by this key. @param {bigint} n @param {Uint8Array<ArrayBuffer>} message @param {Uint8Array<ArrayBuffer>} signature */
export declare function verifies(n: bigint, message: Uint8Array<ArrayBuffer>, signature: Uint8Array<ArrayBuffer>): Promise<boolean>;
