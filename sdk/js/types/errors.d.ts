/** Errors with the stable names of docs/problems.md. No message carries a context, arm, reward or raw value. */
export declare class PrivateerError extends Error {
    type: string;
    field: string | null;
    /**
     * @param {string} type name of the problem, as `terms-refused`
     * @param {string} detail what went wrong
     * @param {string | null} [field] dotted name of what is wrong
     */
    constructor(type: string, detail: string, field?: string | null);
}
/** @param {string} detail @param {string | null} [field] */
export declare const malformed: (detail: string, field?: string | null) => PrivateerError;
/** @param {string} detail @param {string} field */
export declare const refused: (detail: string, field: string) => PrivateerError;
/** @param {string} detail @param {string} field */
export declare const invalid: (detail: string, field: string) => PrivateerError;
/** A file that nobody may decide by. @param {string} detail */
export declare const unusable: (detail: string) => PrivateerError;
/** @param {string} detail */
export declare const unavailable: (detail: string) => PrivateerError;
/** The platform lacks something. @param {string} detail @param {string} field */
export declare const unsupported: (detail: string, field: string) => PrivateerError;
/** Nothing was paid or sent, as the device cannot write it down. @param {string} detail */
export declare const unwritable: (detail: string) => PrivateerError;
/** @param {string} [detail] */
export declare const alreadyReported: (detail?: string) => PrivateerError;
