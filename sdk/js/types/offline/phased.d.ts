/** Phased elimination, for deciding alone: a phase plays the same actions for everybody. */
export declare class PhasedDecider {
    version: any;
    cohort: string;
    active: number[];
    support: number[];
    plays: number[];
    /** @param {any} told the policy as decoded @param {import("../spec.js").Spec} spec */
    constructor(told: any, spec: import("../spec.js").Spec);
    /** @param {number} actions */
    check(actions: number): void;
    /** How often each action is played, by its row. @returns {Record<string, number>} */
    show(): Record<string, number>;
}
