// @ts-check
/** The algorithms whose policies this client follows, by the name in the spec. */

import { AdditivePolicy } from "./additive.js";
import { BanditPolicy } from "./bandit.js";
import { LinearPolicy } from "./linear.js";
import { PartitionPolicy } from "./partition.js";
import { TrialPolicy } from "./trial.js";

/** @typedef {PartitionPolicy | BanditPolicy | TrialPolicy | LinearPolicy | AdditivePolicy} Policy */

export const ALGORITHMS = new Map(
  Object.entries({ partition: PartitionPolicy, bandit: BanditPolicy, trial: TrialPolicy, linear: LinearPolicy, additive: AdditivePolicy }),
);
