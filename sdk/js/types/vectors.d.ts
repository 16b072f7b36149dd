/** Bounded vectors: clipped on the device, on an integer grid. */
/** Grid points per unit of the bound. */
export declare const GRID: number;
/** @param {number[]} vector */
export declare const lengthOf: (vector: number[]) => number;
/** @param {number[]} one @param {number[]} other */
export declare const dot: (one: number[], other: number[]) => number;
/** A row times a matrix. @param {number[]} row @param {number[][]} matrix */
export declare function product(row: number[], matrix: number[][]): number[];
/** The vectors within a bound of 0, by their length. */
export declare class Ball {
    bound: number;
    coordinates: number;
    /** @param {any} told */
    constructor(told: any);
    /** Distance of grid points. */
    get step(): number;
    /** Largest distance of two people's vectors on the grid, in grid points; rounding included. */
    get diameter(): number;
    /** Shorten what is too long. @param {number[]} vector */
    clip(vector: number[]): number[];
    /** As integers, rounded at random so that nothing is moved on average. @param {number[]} vector @param {import("./platform.js").Noise} noise */
    onGrid(vector: number[], noise: import("./platform.js").Noise): number[];
}
