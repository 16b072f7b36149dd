/** The part of msgpack that the wire format uses. Integers beyond 2^53 are BigInt; bin is Uint8Array. */
/** @param {Uint8Array<ArrayBuffer>} bytes @returns {any} */
export declare function decode(bytes: Uint8Array<ArrayBuffer>): any;
/** @param {any} value null, text, bytes, unsigned integers and arrays of these @returns {Uint8Array<ArrayBuffer>} */
export declare function encode(value: any): Uint8Array<ArrayBuffer>;
