/** A server's key, and its public log: what is published is signed, in the log, and the log only grows. */
import { PrivateerError } from "./errors.js";
export type Head = {
    origin: string;
    size: number;
    root: Uint8Array<ArrayBuffer>;
    signed: string;
};
export type Known = {
    key: string;
    head: string;
};
export declare const keyChanged: () => PrivateerError;
/**
 * The key that signed a publication.
 * @param {string} header @param {Uint8Array<ArrayBuffer>} body
 * @param {string[]} known keys that the server may have; empty: any, since it is met for the first time
 */
export declare function checkSigned(header: string, body: Uint8Array<ArrayBuffer>, known: string[]): Promise<string>;
/** Whether evidence is of a server that contradicted itself; null: nothing is known. @param {string | null} evidence */
export declare const contradicts: (evidence: string | null) => boolean;
/** The refusal of a server that contradicted itself. @param {string} evidence @param {string} server */
export declare const contradicted: (evidence: string, server: string) => PrivateerError;
/** What a head says that this key has signed. @param {string} signed @param {string} key @returns {Promise<Head>} */
export declare function openHead(signed: string, key: string): Promise<Head>;
/**
 * Refuse a proof, asked for without a block, with fewer of the last leaves than the size of its head asks for: a server
 * that tells little would learn who has a head already, and in which block.
 * @param {any} proof @param {string} key @param {Head | null} last
 */
export declare function checkStart(proof: any, key: string, last: Head | null): Promise<void>;
/** The block to ask for, if a proof says nothing of the last head; null if it does. @param {any} proof @param {Head | null} last */
export declare const blockOf: (proof: any, last: Head | null) => number | null;
/**
 * The head of a proof that shows that an entry is in the log, and that the log continues the last head.
 * @param {any} proof @param {Uint8Array<ArrayBuffer>} entry @param {string} key @param {Head | null} last
 */
export declare function checkProof(proof: any, entry: Uint8Array<ArrayBuffer>, key: string, last: Head | null): Promise<Head>;
/** @param {string} experiment @param {number} version @param {Uint8Array<ArrayBuffer>} digest */
export declare const entryOf: (experiment: string, version: number, digest: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>;
