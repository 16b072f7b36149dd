/**
 * One-use upload tokens: Privacy Pass tokens of type 0x0002 (RFC 9577 and RFC 9578). A token is for one experiment at one
 * endpoint. Its challenge says so, and the device makes it itself, so that nobody can mark a device by it.
 */
export declare const SIGNATURE_SIZE = 256;
export type PendingToken = {
    input: Uint8Array<ArrayBuffer>;
    request: Uint8Array<ArrayBuffer>;
    inverse: Uint8Array<ArrayBuffer>;
};
export type TokenKey = import("./keys.js").TokenKey;
/** What a token is for: the names of issuer and endpoint, and the experiment. @param {string} issuer @param {string} origin @param {string} experiment */
export declare function challenge(issuer: string, origin: string, experiment: string): Promise<Uint8Array<ArrayBuffer>>;
/** The name of a service at an address, as challenges have it: host, and port unless it is 443. @param {string} url */
export declare function serverName(url: string): string;
/** Draw a token, and blind it. @param {Uint8Array<ArrayBuffer>} digest of the challenge @param {TokenKey} key
 * @param {{nonce?: Uint8Array<ArrayBuffer>, salt?: Uint8Array<ArrayBuffer>, inverse?: Uint8Array}} [known] randomness that tests know
 * @returns {Promise<PendingToken>} */
export declare function draw(digest: Uint8Array<ArrayBuffer>, key: TokenKey, { nonce, ...known }?: {
    nonce?: Uint8Array<ArrayBuffer>;
    salt?: Uint8Array<ArrayBuffer>;
    inverse?: Uint8Array;
}): Promise<PendingToken>;
/** Id of the key that shall sign a token. @param {{input: Uint8Array<ArrayBuffer>}} token */
export declare const keyIdOf: ({ input }: {
    input: Uint8Array<ArrayBuffer>;
}) => Uint8Array<ArrayBuffer>;
/** Digest of the challenge that a token is for. @param {Uint8Array<ArrayBuffer>} token or what is to be signed of it */
export declare const digestOf: (token: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>;
/** What an endpoint knows a token by: the digest of its challenge, and the id of its key. @param {Uint8Array} token */
export declare const markOf: (token: Uint8Array) => Uint8Array<ArrayBuffer>;
/** The token that the issuer's answer makes. @param {PendingToken} pending @param {TokenKey} key @param {Uint8Array} signed */
export declare const finished: ({ input, inverse }: PendingToken, key: TokenKey, signed: Uint8Array) => Promise<Uint8Array<ArrayBuffer>>;
/** The header that spends a token. @param {Uint8Array} token */
export declare const authorization: (token: Uint8Array) => string;
