/** Arrays inside a policy: `[dtype, shape, bytes]`. */
/**
 * Read an array of a kind and a number of axes.
 * @param {any} value @param {string} dtype @param {number} axes
 * @returns {{shape: number[], values: number[]}} values in row-major order
 */
export declare function array(value: any, dtype: string, axes: number): {
    shape: number[];
    values: number[];
};
/** @param {any} value @param {string} dtype @returns {number[]} */
export declare const list: (value: any, dtype: string) => number[];
/** @param {any} value @param {string} dtype @returns {{rows: number[][], columns: number}} */
export declare function table(value: any, dtype: string): {
    rows: number[][];
    columns: number;
};
