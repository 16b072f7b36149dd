/** The reports of a device to one experiment: made for the round that is open, and paid for. */
export type Choice = import("./participation.js").Choice;
export type Participation = import("./participation.js").Participation;
export type Entry = import("./ledgers/ledger.js").Entry;
/** @typedef {import("./participation.js").Choice} Choice */
/** @typedef {import("./participation.js").Participation} Participation */
/** @typedef {import("./ledgers/ledger.js").Entry} Entry */
/** Whether no report of this device went to the round, or to a later one: no crowd hides two as it hides one.
 * @param {Entry} entry @param {Participation} opened */
export declare const isNew: ({ payment }: Entry, { round }: Participation) => boolean;
/**
 * Make the report on a choice and pay for it; null, and nothing is paid, if the open round does not take it.
 * @param {import("./publications.js").Publications} publications @param {Choice} choice @param {Participation} opened
 * @returns {Promise<import("./ledgers/ledger.js").Sealed | null>}
 */
export declare function madeOn(publications: import("./publications.js").Publications, choice: Choice, opened: Participation): Promise<import("./ledgers/ledger.js").Sealed | null>;
/**
 * Make the report on the choice that is kept, if it is due; it then waits to be sent.
 * @param {import("./publications.js").Publications} publications
 * @returns {Promise<"pending" | "not-asked" | null>} null: there is nothing to do any more. `pending`: no round takes it, for
 * now. `not-asked`: none has for so long that the device has erased the choice.
 */
export declare function settled(publications: import("./publications.js").Publications): Promise<"pending" | "not-asked" | null>;
