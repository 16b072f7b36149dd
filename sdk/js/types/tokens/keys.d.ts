/** The public keys of an issuer, and the document that shows them: RFC 9578's directory, by experiment. */
export declare const DIRECTORY = "application/private-token-issuer-directory";
export type TokenKey = {
    encoded: Uint8Array<ArrayBuffer>;
    n: bigint;
    id: Uint8Array<ArrayBuffer>;
    notBefore: number;
    notAfter: number;
};
/** @typedef {{encoded: Uint8Array<ArrayBuffer>, n: bigint, id: Uint8Array<ArrayBuffer>, notBefore: number, notAfter: number}} TokenKey */
/** A key that signs tokens. @param {Uint8Array<ArrayBuffer>} encoded @param {number} notBefore @param {number} notAfter @returns {Promise<TokenKey>} */
export declare function tokenKey(encoded: Uint8Array<ArrayBuffer>, notBefore: number, notAfter: number): Promise<TokenKey>;
/** Whether tokens of a key count now. @param {TokenKey} key @param {number} now */
export declare const isValid: ({ notBefore, notAfter }: TokenKey, now: number) => boolean;
/**
 * Whose keys a document shows, and those of an experiment, the newest first.
 * @param {Uint8Array<ArrayBuffer>} body @param {string} experiment @returns {Promise<{issuer: string, keys: TokenKey[]}>}
 */
export declare function readDirectory(body: Uint8Array<ArrayBuffer>, experiment: string): Promise<{
    issuer: string;
    keys: TokenKey[];
}>;
