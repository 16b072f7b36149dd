/** HTTP with an end: every answer is bounded in bytes and in time, whatever the server does. */
export declare const MSGPACK = "application/msgpack";
export type Answer = {
    status: number;
    headers: Headers;
    body: Uint8Array<ArrayBuffer>;
};
/** @typedef {{status: number, headers: Headers, body: Uint8Array<ArrayBuffer>}} Answer */
/**
 * Ask once.
 * @param {string} url @param {RequestInit} request @param {number} seconds @param {number} [most] bytes of a success
 * @returns {Promise<Answer>}
 */
export declare function ask(url: string, request: RequestInit, seconds: number, most?: number): Promise<Answer>;
/** The name of the problem in an answer; null if it is none. @param {Answer} answer @returns {string | null} */
export declare function problem({ body }: Answer): string | null;
