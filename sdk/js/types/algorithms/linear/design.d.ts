/** How columns in [0, 1] become the coordinates of a context: 1, and what each block of columns says. */
export type Block = import("../../features.js").Block;
export declare class Design {
    blocks: import("../../features.js").Block[];
    dimension: number;
    /** @param {import("../../spec.js").Spec} spec */
    constructor(spec: import("../../spec.js").Spec);
    /** Whether a policy has the same. @param {any} told */
    is(told: any): boolean;
    /** A number is in [-1, 1], yes and no are 1 and -1, and one of several levels is one-hot. @param {number[]} columns */
    row(columns: number[]): number[];
}
