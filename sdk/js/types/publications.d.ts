/** The publications of one experiment, as a device gets them: from the server, or the one that it kept. */
import { Participation } from "./participation.js";
export type Published = {
    participation: Participation;
    sent: {
        now: number;
        monotonic: number;
    } | null;
};
/** A publication that was checked, and when the server sent it; null: the device had kept it.
 * @typedef {{participation: Participation, sent: {now: number, monotonic: number} | null}} Published */
export declare class Publications {
    client: import("./client.js").Client;
    name: string;
    identity: string;
    /** @param {import("./client.js").Client} client @param {string} name of the experiment */
    constructor(client: import("./client.js").Client, name: string);
    /** By what this person decides: the server's publication, or the one kept if the server does not answer. @returns {Promise<Published>} */
    joined(): Promise<Published>;
    /** The last one that was checked, checked anew. @returns {Promise<Published | null>} */
    kept(): Promise<Published | null>;
    /** The one whose round is open now. @param {Published | null} known @returns {Promise<Published>} */
    opened(known: Published | null): Promise<Published>;
    /** @param {Participation | null} known @param {boolean} choosing whether the person is to choose by it @returns {Promise<Published>} */
    fetched(known: Participation | null, choosing?: boolean): Promise<Published>;
    /** See that a publication is in the server's log, and keep the log's head. @param {Participation} followed @param {string} key
     * @param {string} signed */
    witnessed(followed: Participation, key: string, signed: string): Promise<void>;
    /** Check a proof, and keep its head; false if another page has kept one meanwhile. @param {Participation} followed @param {string} key
     * @param {string} header that signs the publication */
    proved({ round, digest }: Participation, key: string, header: string): Promise<boolean>;
    /** @param {import("./publication.js").Round} round @param {number | null} block @returns {Promise<any>} */
    proof({ experiment, version }: import("./publication.js").Round, block: number | null): Promise<any>;
    /** Where reports go. @param {Participation} participation */
    endpoint({ round, spec }: Participation): string;
}
