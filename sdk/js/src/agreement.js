// @ts-check
/** Whether the parts of a publication are about the same round. */

import { refused } from "./errors.js";

/**
 * Refuse a publication whose parts disagree.
 * @param {{round: import("./publication.js").Round, spec: import("./spec.js").Spec, terms: any,
 *   policy: {version: number, cohort: string}, decider: {version: number}}} parts `decider` is another policy while a round drains
 * @param {string} name of the experiment that was asked for
 */
export function checkAgreement({ round, spec, terms, policy, decider }, name) {
  const drains = decider !== policy;
  requireAgreement({
    experiment: round.experiment === spec.name && spec.name === name,
    version: round.version === policy.version && round.version === decider.version,
    model: round.model === spec.privacy.model && round.model === terms.model,
    batch_size: round.batchSize === terms.batch_size,
    cohort: policy.cohort === "" || (spec.sources.includes(policy.cohort) && !drains),
    drain: !drains || spec.window > 0,
  });
}

/** Refuse what does not hold, by its field. @param {Record<string, boolean>} isSameRound */
export function requireAgreement(isSameRound) {
  for (const [field, agrees] of Object.entries(isSameRound)) {
    if (!agrees) throw refused("round, spec and policy disagree", field);
  }
}
