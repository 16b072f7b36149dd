// @ts-check
/** The mechanisms that this client knows, by the name in the terms. */

import { EventSymbol } from "./event-symbol.js";
import { FeatureSums } from "./feature-sums.js";
import { GroupedBit } from "./grouped-bit.js";
import { NamedSymbol } from "./named-symbol.js";
import { CellPairs, CellProducts, CellTriples, CentralSums } from "./records.js";
import { RowSums, RunningVectors } from "./row-sums.js";
import { SignedSymbol } from "./signed-symbol.js";
import { TieredSymbol } from "./tiered-symbol.js";
import { GaussianVectors } from "./vector-noise.js";
import { VectorSymbol } from "./vector-symbol.js";

/**
 * What a person tells: a value in [0, 1] about a key (-1: about none), a value in [-1, 1] with the arm and the answers to all questions or a row,
 * or a vector; with the coins of the report, and a number in [0, 1] beside the value where the round asks for one.
 * @typedef {{slot: number, key: number, value: number, vector: number[], number?: number, arm?: number, answers?: number[], row?: number[]}} Contribution
 */

/** @typedef {EventSymbol | FeatureSums | GroupedBit | NamedSymbol | SignedSymbol | CellPairs | CellProducts | CellTriples | CentralSums | GaussianVectors | RowSums | RunningVectors | TieredSymbol | VectorSymbol} Mechanism */

export { CellPairs, CellProducts, CellTriples, CentralSums, EventSymbol, FeatureSums, GaussianVectors, GroupedBit, NamedSymbol, RowSums, RunningVectors, SignedSymbol, TieredSymbol, VectorSymbol };
