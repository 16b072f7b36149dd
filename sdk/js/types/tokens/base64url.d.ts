/** Bytes in headers and JSON. */
/** With padding. @param {Uint8Array} some */
export declare const base64url: (some: Uint8Array) => string;
/** The bytes of a text with padding; nothing else has the same bytes. @param {unknown} text @returns {Uint8Array<ArrayBuffer>} */
export declare function unbase64url(text: unknown): Uint8Array<ArrayBuffer>;
