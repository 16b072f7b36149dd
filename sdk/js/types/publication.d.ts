/** The publication of a round: one immutable document, named by its digest. */
/** The public facts of a round. */
export declare class Round {
    experiment: string;
    version: number;
    model: string;
    batch: number;
    sealedSize: number;
    publicKey: Uint8Array<ArrayBuffer>;
    messages: number;
    fewest: number;
    deadline: number;
    groups: number;
    /** @param {any} told */
    constructor(told: any);
}
/**
 * Read a publication.
 * @param {Uint8Array<ArrayBuffer>} body
 */
export declare function readPublication(body: Uint8Array<ArrayBuffer>): Promise<{
    round: Round;
    spec: Uint8Array<ArrayBuffer>;
    policy: any;
    drain: any;
    digest: Uint8Array<ArrayBuffer>;
    keyId: Uint8Array<ArrayBuffer>;
}>;
