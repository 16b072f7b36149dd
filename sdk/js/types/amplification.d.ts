/** What a shuffled batch of randomized responses costs a person: the privacy-blanket bound (docs/foreign-clients.md). */
/**
 * An upper bound of delta at epsilon, for a batch of which `honest` reports are randomized responses.
 * @param {number} epsilon @param {number} local pure epsilon of a report @param {number} symbols @param {number} honest
 */
export declare function shuffledDelta(epsilon: number, local: number, symbols: number, honest: number): number;
