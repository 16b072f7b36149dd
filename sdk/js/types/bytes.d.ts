/** Bytes and text. */
/** @param {Uint8Array} some */
export declare const hex: (some: Uint8Array) => string;
/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export declare const unhex: (text: string) => Uint8Array<ArrayBuffer>;
/** @param {Uint8Array} one @param {Uint8Array} other */
export declare const same: (one: Uint8Array, other: Uint8Array) => boolean;
/** @param {(Uint8Array<ArrayBuffer> | number[])[]} parts */
export declare function joined(...parts: (Uint8Array<ArrayBuffer> | number[])[]): Uint8Array<ArrayBuffer>;
