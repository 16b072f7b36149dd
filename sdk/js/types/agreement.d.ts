/** Whether the parts of a publication are about the same round. */
/**
 * Refuse a publication whose parts disagree.
 * @param {{round: import("./publication.js").Round, spec: import("./spec.js").Spec, terms: any,
 *   policy: {version: number, cohort: string}, decider: {version: number}}} parts `decider` is another policy while a round drains
 * @param {string} name of the experiment that was asked for
 */
export declare function agree({ round, spec, terms, policy, decider }: {
    round: import("./publication.js").Round;
    spec: import("./spec.js").Spec;
    terms: any;
    policy: {
        version: number;
        cohort: string;
    };
    decider: {
        version: number;
    };
}, name: string): void;
/** Refuse what does not hold, by its field. @param {Record<string, boolean>} same */
export declare function hold(same: Record<string, boolean>): void;
