// @ts-check
/** The trust models, a row for each: who sees what, and which mechanisms answer which question. */

import {
  CellPairs, CellProducts, CellTriples, CentralSums, EventSymbol, FeatureSums, GaussianVectors, GroupedBit, NamedSymbol,
  RowSums, RunningVectors, SignedSymbol, TieredSymbol, VectorSymbol,
} from "./mechanisms/index.js";

/** What a round asks of people. @typedef {"means" | "names" | "hits" | "directions" | "features"} Question */

/** Hits of so many keys, by value; `expected` is the mean of numbers whose variance is wanted, null: values are bits;
 * `beside`: whether a number comes with each value. @typedef {{keys: number, expected: number | null, beside: boolean}} Hits */

/**
 * @typedef {object} Trust
 * @property {"server" | "shuffler"} endpoint who takes the reports
 * @property {"nobody" | "server"} curator who sees records as they are
 * @property {"nobody" | "devices" | "curator" | "servers"} noise who adds noise: nobody where nothing is promised, each device to its report,
 *   who sees the records to their sums, or each of two servers that see none to its own share of the sums
 * @property {"nobody" | "batch" | "release"} crowd whose reports the adversary sees together with a person's: nobody's, those of a batch on
 *   whose honest people the promise counts, or all of a release
 * @property {number} least the least delta above 0 that is certified
 * @property {Record<Question, any[]>} serves mechanisms that may answer
 */

/** @type {Record<string, Trust>} */
export const TRUST = {
  local: {
    endpoint: "server", curator: "nobody", noise: "devices", crowd: "nobody", least: 0,
    serves: {
      means: [SignedSymbol, EventSymbol, TieredSymbol], names: [SignedSymbol, EventSymbol, TieredSymbol], hits: [NamedSymbol],
      directions: [VectorSymbol, GaussianVectors], features: [NamedSymbol],
    },
  },
  shuffle: {
    endpoint: "shuffler", curator: "nobody", noise: "devices", crowd: "batch", least: 1e-15,
    serves: {
      means: [SignedSymbol, EventSymbol, GroupedBit], names: [SignedSymbol, EventSymbol, NamedSymbol, GroupedBit],
      hits: [NamedSymbol], directions: [VectorSymbol], features: [NamedSymbol],
    },
  },
  central: {
    endpoint: "server", curator: "server", noise: "curator", crowd: "release", least: 1e-8,
    serves: {
      means: [CentralSums, CellPairs], names: [CentralSums, CellPairs], hits: [CellPairs, CellTriples, CellProducts],
      directions: [RowSums, RunningVectors], features: [FeatureSums, CellPairs],
    },
  },
  none: {
    endpoint: "server", curator: "server", noise: "nobody", crowd: "release", least: 0,
    serves: { means: [CentralSums], names: [CentralSums], hits: [CellPairs, CellTriples, CellProducts], directions: [RowSums],
      features: [FeatureSums] },
  },
};

/** Whether the promise is about what becomes of many reports, among which a seen arm must not single one out. @param {Trust} row */
export const hidesArms = (row) => row.noise !== "nobody" && row.crowd !== "nobody";

/** What the adversary of the promise sees of a report, as a curve by honest people, and by the points of a grid where
 * one is needed; null: the record.
 * @param {Trust} row @param {any} mechanism
 * @returns {((honest: number, points?: number) => import("./privacy/curves.js").Curve) | null} */
export function armVisibility(row, mechanism) {
  if (row.noise === "nobody") return null;
  if (row.crowd === "batch") return (honest, points) => mechanism.shuffled(honest, points);
  const curve = row.crowd === "nobody" ? mechanism.localCurve() : mechanism.released();
  return curve && (() => curve);
}
