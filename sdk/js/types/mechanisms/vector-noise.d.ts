/** Vectors with normal noise: from every device, or drawn once by a curator at the release. */
import { RoundedNormal } from "../sampling/normal.js";
import { Ball } from "../vectors.js";
declare class NoisyVectors {
    ball: Ball;
    deviation: number;
    localEpsilon: number;
    classes: number;
    messages: number;
    reportSize: number;
    sampling: number;
    /** @param {any} told @param {string[]} fields */
    constructor(told: any, fields: string[]);
    /** How far two people may be from each other in what is seen. */
    get shift(): number;
    /** @returns {import("../privacy/curves.js").Curve | null} */
    curve(): import("../privacy/curves.js").Curve | null;
}
export declare class GaussianVectors extends NoisyVectors {
    normal: RoundedNormal;
    static TYPE: string;
    /** @param {any} told */
    constructor(told: any);
    alone(): import("../privacy/curves.js").Curve | null;
    /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
    randomize({ vector }: import("./index.js").Contribution, noise: import("../platform.js").Noise): Uint8Array<ArrayBuffer>;
}
export declare class CentralVectors extends NoisyVectors {
    static TYPE: string;
    /** @param {any} told @param {string[]} fields */
    constructor(told: any, fields?: string[]);
    released(): import("../privacy/curves.js").Curve | null;
    /** @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise */
    randomize({ vector }: import("./index.js").Contribution, noise: import("../platform.js").Noise): Uint8Array<ArrayBuffer>;
}
/** Sums since the first round, whose noise does not add up (docs/vectors.md). */
export declare class RunningVectors extends CentralVectors {
    kind: any;
    steps: number;
    continues: boolean;
    static TYPE: string;
    /** @param {any} told */
    constructor(told: any);
    get shift(): number;
}
export {};
