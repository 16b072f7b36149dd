// @ts-check
/** The trust models, a row for each: who sees what, and which mechanisms answer which question. */

import {
  CellPairs, CellProducts, CellTriples, CentralSums, CentralVectors, EventSymbol, FeatureSums, GaussianVectors, GroupedBit, NamedSymbol,
  RunningVectors, SignedSymbol, VectorSymbol,
} from "./mechanisms/index.js";

/** What a round asks of people. @typedef {"means" | "names" | "hits" | "directions" | "features"} Question */

/** Hits of so many keys, by value; `expected` is the mean of numbers whose variance is wanted, null: values are bits;
 * `beside`: whether a number comes with each value. @typedef {{keys: number, expected: number | null, beside: boolean}} Hits */

/**
 * @typedef {object} Trust
 * @property {"server" | "shuffler"} endpoint who takes the reports
 * @property {boolean} curated whether the server sees records as they are
 * @property {boolean} promises whether an epsilon is promised
 * @property {boolean} batched whether the promise counts on the honest people of a batch
 * @property {number} least the least delta above 0 that is certified
 * @property {Record<Question, any[]>} serves mechanisms that may answer
 */

/** @type {Record<string, Trust>} */
export const TRUST = {
  local: {
    endpoint: "server", curated: false, promises: true, batched: false, least: 0,
    serves: { means: [SignedSymbol, EventSymbol], names: [SignedSymbol, EventSymbol], hits: [NamedSymbol], directions: [VectorSymbol, GaussianVectors],
      features: [NamedSymbol] },
  },
  shuffle: {
    endpoint: "shuffler", curated: false, promises: true, batched: true, least: 1e-15,
    serves: {
      means: [SignedSymbol, EventSymbol, GroupedBit], names: [SignedSymbol, EventSymbol, NamedSymbol, GroupedBit],
      hits: [NamedSymbol], directions: [VectorSymbol], features: [NamedSymbol],
    },
  },
  central: {
    endpoint: "server", curated: true, promises: true, batched: false, least: 1e-8,
    serves: {
      means: [CentralSums, CellPairs], names: [CentralSums, CellPairs], hits: [CellPairs, CellTriples, CellProducts],
      directions: [CentralVectors, RunningVectors], features: [FeatureSums, CellPairs],
    },
  },
  none: {
    endpoint: "server", curated: true, promises: false, batched: false, least: 0,
    serves: { means: [CentralSums], names: [CentralSums], hits: [CellPairs, CellTriples, CellProducts], directions: [CentralVectors],
      features: [FeatureSums] },
  },
};

/** Whether who comes back reports one time of all, drawn in advance: no crowd makes repetition cheap. @param {Trust} row */
export const drawsOne = (row) => row.promises && !row.batched && !row.curated;

/** Whether the promise is about what becomes of many reports, among which a seen arm must not single one out. @param {Trust} row */
export const hidesArms = (row) => row.promises && (row.batched || row.curated);

/** What the adversary of the promise sees of a report, as a curve by honest people, and by the points of a grid where
 * one is needed; null: the record.
 * @param {Trust} row @param {any} mechanism
 * @returns {((honest: number, points?: number) => import("./privacy/curves.js").Curve) | null} */
export function armVisibility(row, mechanism) {
  if (!row.promises) return null;
  if (row.batched) return (honest, points) => mechanism.shuffled(honest, points);
  const curve = row.curated ? mechanism.released() : mechanism.localCurve();
  return curve && (() => curve);
}
