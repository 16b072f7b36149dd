// @ts-check
/** The algorithms whose policies this client follows, by the name in the spec. */

import { BanditPolicy } from "./bandit.js";
import { PartitionPolicy } from "./partition.js";
import { TrialPolicy } from "./trial.js";

/** @typedef {PartitionPolicy | BanditPolicy | TrialPolicy} Policy */
/** @typedef {import("../mechanisms/signed-symbol.js").SignedSymbol | import("../mechanisms/named-symbol.js").NamedSymbol} Symbols */

export const ALGORITHMS = new Map(
  Object.entries({ partition: PartitionPolicy, bandit: BanditPolicy, trial: TrialPolicy }),
);
