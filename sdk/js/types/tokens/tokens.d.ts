/** How a device gets upload tokens: ahead, apart from reports, with keys that are everybody's. */
import { PrivateerError } from "../errors.js";
export type Attest = (experiment: string) => string | Promise<string>;
export type TokenKey = import("./keys.js").TokenKey;
export type PendingToken = import("./token.js").PendingToken;
export type Sealed = import("../ledgers/ledger.js").Sealed;
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
    /**
     * Get another token for a report whose token is refused, if it names none of the keys that the endpoint shows. The report
     * keeps its token until another one is there, since an issuer may find its keys again. Its bytes stay as they are, and hold
     * its id, so that it counts once whichever token they come with.
     * @param {Sealed} report @param {number} seconds for each request
     */
    replace(report: Sealed, seconds: number): Promise<void>;
    /** Digest of the challenge that tokens for an endpoint are for. @param {string} endpoint */
    digest(endpoint: string): Promise<Uint8Array<ArrayBuffer>>;
    /**
     * Get missing tokens; first those that were asked for before.
     * @param {string} endpoint @param {number} missing @param {number} wanted as many as the ledger may have then
     * @param {TokenKey[]} keys @param {number} seconds for each request
     */
    get(endpoint: string, missing: number, wanted: number, keys: TokenKey[], seconds: number): Promise<void>;
    /** The tokens that were asked for before and may still be signed; forget the others. @param {PendingToken[]} pending @param {TokenKey[]} keys */
    stillValid(pending: PendingToken[], keys: TokenKey[]): Promise<import("./token.js").PendingToken[]>;
    /**
     * The keys for tokens, the newest first: the newest that the server lists, which the endpoint must show, too. Neither
     * request says who asks. If the endpoint, or the issuer behind it, could choose among keys, the choice would tell devices
     * from each other when they spend their tokens.
     * @param {string} base @param {number} seconds @returns {Promise<{good: TokenKey[], shown: TokenKey[]}>} and all that the
     * endpoint shows
     */
    keys(base: string, seconds: number): Promise<{
        good: TokenKey[];
        shown: TokenKey[];
    }>;
    /** @param {string} base @param {number} seconds @returns {Promise<TokenKey[] | null>} */
    shown(base: string, seconds: number): Promise<TokenKey[] | null>;
    /** Have a token signed, and keep it. @param {PendingToken} pending @param {TokenKey[]} keys @param {number} seconds */
    sign(pending: PendingToken, keys: TokenKey[], seconds: number): Promise<void>;
    /** What tells the issuer of this device. @param {number} seconds @returns {Promise<Record<string, string>>} */
    attestation(seconds: number): Promise<Record<string, string>>;
    /** Why the issuer gives no token. @param {string} reason @param {PendingToken} pending */
    unsigned(reason: string, pending: PendingToken): Promise<PrivateerError>;
}
