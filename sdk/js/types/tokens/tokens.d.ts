/** How a device gets upload tokens: ahead, apart from reports, with keys that are everybody's. */
import { PrivateerError } from "../errors.js";
export type Attest = (experiment: string) => string | Promise<string>;
export type TokenKey = import("./keys.js").TokenKey;
export type PendingToken = import("./token.js").PendingToken;
/** Gets tokens for one experiment. */
export declare class Tokens {
    client: import("../client.js").Client;
    name: string;
    identity: string;
    issuer: string;
    /** @param {import("../client.js").Client} client with an issuer @param {string} name of the experiment */
    constructor(client: import("../client.js").Client, name: string);
    /**
     * Get tokens until so many are left for an endpoint; ask nobody if they are there already.
     * @param {string} endpoint @param {number} wanted @param {number} seconds for each request
     */
    fill(endpoint: string, wanted: number, seconds: number): Promise<void>;
    /** The tokens that were asked for before and may still be signed; forget the others. @param {PendingToken[]} pending @param {TokenKey[]} keys */
    stillValid(pending: PendingToken[], keys: TokenKey[]): Promise<import("./token.js").PendingToken[]>;
    /**
     * The keys that the endpoint takes, the newest first, if the server shows the same. Neither request says who asks. Keys
     * that only one device gets would tell it from others when it spends a token.
     * @param {string} base @param {number} seconds
     */
    keys(base: string, seconds: number): Promise<import("./keys.js").TokenKey[]>;
    /** @param {string} base @param {number} seconds @returns {Promise<TokenKey[] | null>} */
    shown(base: string, seconds: number): Promise<TokenKey[] | null>;
    /** Have a token signed, and keep it. @param {PendingToken} pending @param {TokenKey[]} keys @param {number} seconds */
    sign(pending: PendingToken, keys: TokenKey[], seconds: number): Promise<void>;
    /** What tells the issuer of this device. @param {number} seconds @returns {Promise<Record<string, string>>} */
    attestation(seconds: number): Promise<Record<string, string>>;
    /** Why the issuer gives no token. @param {string} reason @param {PendingToken} pending */
    unsigned(reason: string, pending: PendingToken): Promise<PrivateerError>;
}
