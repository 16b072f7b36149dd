/** Bandits on a convex set, for deciding alone: points around a public centre. */
import { Layout } from "../coins.js";
export declare class ConvexDecider {
    version: any;
    cohort: string;
    domain: {
        shape: "ball" | "box";
        dimension: number;
        radius: number;
    };
    centre: number[];
    axes: number[][];
    points: any;
    layout: Layout;
    /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
    constructor(told: any, spec: import("../spec.js").Spec);
    /** @param {import("../spec.js").Spec} spec @param {number} batch */
    check(spec: import("../spec.js").Spec, batch: number): void;
    /** Whether a point is of the set. @param {number[]} point */
    holds(point: number[]): boolean;
    /** @param {number[]} way @param {number} sign */
    moved(way: number[], sign: number): number[];
    /** A point, or two by their names. @param {number[]} _columns @param {number} slot @returns {number[] | Record<string, number[]>} */
    show(_columns: number[], slot: number): number[] | Record<string, number[]>;
}
