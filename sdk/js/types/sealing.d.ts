/** HPKE (RFC 9180), base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM. Nothing here opens. */
/**
 * Seal a report; the result is 48 bytes longer.
 * @param {Uint8Array<ArrayBuffer>} plaintext @param {Uint8Array<ArrayBuffer>} publicKey @param {Uint8Array<ArrayBuffer>} info
 * @param {CryptoKeyPair} [ephemeral] for tests; by default a fresh one
 */
export declare function seal(plaintext: Uint8Array<ArrayBuffer>, publicKey: Uint8Array<ArrayBuffer>, info: Uint8Array<ArrayBuffer>, ephemeral?: CryptoKeyPair): Promise<Uint8Array<ArrayBuffer>>;
/** @param {Uint8Array<ArrayBuffer>} bytes */
export declare const sha256: (bytes: Uint8Array<ArrayBuffer>) => Promise<Uint8Array<ArrayBuffer>>;
