/** What a device reads in a spec. */
export type Privacy = {
    model: string;
    epsilon: number | null;
    delta: number;
    arms: string;
    min_batch: number;
    honest_fraction: number;
    local_epsilon_max: number;
};
export declare class Spec {
    name: string;
    algorithm: string;
    /** The section `[algorithm]`. @type {any} */
    table: any;
    /** Names of the arms; none where people get points, or everybody the same actions. */
    arms: string[];
    domain: any;
    options: string[];
    retired: string[];
    playable: boolean[];
    reward: {
        low: number;
        high: number;
        default?: number | null;
    };
    privacy: Privacy;
    trust: import("./trust.js").Trust;
    tables: any;
    features: Map<string, import("./features.js").Feature>;
    columns: number;
    sources: string[];
    segments: any;
    guardrails: string[];
    window: number;
    times: number;
    period: number;
    /** @param {Uint8Array<ArrayBuffer>} body JSON */
    constructor(body: Uint8Array<ArrayBuffer>);
    /** Refuse a promise out of the range that is certified. */
    checkPromise(): void;
    checkTimes(): void;
    /** Epsilon of the promise; infinite where nothing is promised. */
    get bound(): number;
    /** Whether reports hide the arm as they hide the bin. */
    get armInKey(): boolean;
    /** Reports that a device makes in all, which share the promise: one where one time of many is drawn. */
    get reports(): number;
    /** The calendar's period in which a report falls; 0 where a person reports once. @param {number} now */
    periodOf(now: number): number;
    /** When a report on a choice of now is due, no finer than a hundredth of the window; null: when its outcome is told. @param {number} now */
    dueAfter(now: number): number | null;
    /** What must not change between a choice and the report on it, of the first so many arms. @param {number} arms */
    meaning(arms: number): string;
}
