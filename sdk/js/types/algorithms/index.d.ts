/** The algorithms whose policies this client follows, by the name in the spec. */
import { BanditPolicy } from "./bandit.js";
import { LinearPolicy } from "./linear.js";
import { PartitionPolicy } from "./partition.js";
import { TrialPolicy } from "./trial.js";
export type Policy = PartitionPolicy | BanditPolicy | TrialPolicy | LinearPolicy;
/** @typedef {PartitionPolicy | BanditPolicy | TrialPolicy | LinearPolicy} Policy */
export declare const ALGORITHMS: Map<string, typeof BanditPolicy | typeof LinearPolicy | typeof PartitionPolicy | typeof TrialPolicy>;
