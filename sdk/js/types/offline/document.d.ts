/** What an experiment has found, as one document with its digest: docs/review.md says what its keys mean. */
export type Result = import("../answer.js").Answer | import("../answer.js").OlderResult | null;
export type Export = {
    experiment: string;
    version: number;
    status: import("../answer.js").Status;
    result: Result;
    published: Uint8Array<ArrayBuffer>;
};
/**
 * An export, and the bytes of its publication.
 * @typedef {import("../answer.js").Answer | import("../answer.js").OlderResult | null} Result
 * @typedef {{experiment: string, version: number, status: import("../answer.js").Status, result: Result, published: Uint8Array<ArrayBuffer>}} Export
 */
/** Read and check the file that `privateer export NAME FILE.json` wrote. @param {string | Uint8Array} file @returns {Promise<Export>} */
export declare function readExport(file: string | Uint8Array): Promise<Export>;
