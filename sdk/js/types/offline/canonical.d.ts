/** JSON as RFC 8785 has it: one text for one document, so that a digest of it means the same to everybody. */
/**
 * The canonical text of a value of JSON. Keys are in the order of their UTF-16 code units; numbers and text are written
 * as the language itself writes them.
 * @param {any} value @returns {string}
 */
export declare function canonical(value: any): string;
