/** A person's values as columns in [0, 1]. Every value has a place: whether a device reports must not tell its person's. */
export type Block = {
    columns: number;
    codes: number[];
    flags: boolean;
};
export type Feature = {
    columns: number;
    blocks: Block[];
    wants: string;
    fits: (value: any) => boolean;
    encode: (value: any) => number[];
};
/**
 * The features of a spec, in order.
 * @param {Record<string, any>} tables `context.features` of the spec
 * @returns {Map<string, Feature>}
 */
export declare function features(tables: Record<string, any>): Map<string, Feature>;
/**
 * Numbers that every arm has, within the same bounds: "x1 of a", and so on.
 * @param {{features: number | string[], low?: number, high?: number}} told the section `context` @param {string[]} arms
 * @returns {Map<string, Feature>}
 */
export declare function ofArms({ features: told, low, high }: {
    features: number | string[];
    low?: number;
    high?: number;
}, arms: string[]): Map<string, Feature>;
/** What spec has no place for, in words that name features and no values. @param {Map<string, Feature>} known @param {Record<string, any>} values */
export declare const unfit: (known: Map<string, Feature>, values: Record<string, any>) => string[];
/** One person's columns. @param {Map<string, Feature>} known @param {Record<string, any>} values */
export declare function columnsOf(known: Map<string, Feature>, values: Record<string, any>): number[];
/** A reward scaled to [0, 1]; one that does not fit counts as no outcome, so that every outcome is reported.
 * @param {{low: number, high: number, default?: number | null}} bounds @param {any} told */
export declare function scaledReward(bounds: {
    low: number;
    high: number;
    default?: number | null;
}, told: any): number;
