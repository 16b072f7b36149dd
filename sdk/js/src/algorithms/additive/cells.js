// @ts-check
/** The cells of features, in each of which a shape function has one value, and the questions that merge cells. */

import { requireKnown, formatFields } from "../../errors.js";
import { isWhole } from "../../numbers.js";

/** Numbers of merged cells in which a feature in order is asked about, besides its own cells. */
const COARSER = [2, 4, 8];
/** Cells of a number unless the spec says otherwise, and at most where each report has its own noise. */
const BINS = 16;
const [BINS_MIN, BINS_MAX] = [2, 64];

/**
 * The cells of a feature: of a number equal parts of its column, and one more where it may be missing; or the codes of levels.
 * @typedef {{start: number, bins: number, codes: number[], columns: number, missing: boolean, cyclic: boolean}} ShapeCells
 */

/** @param {ShapeCells} one */
const countCells = ({ bins, codes, missing }) => (bins || codes.length) + (missing ? 1 : 0);

/** @param {import("../../spec.js").Spec} spec @returns {ShapeCells[]} */
function listCells(spec) {
  let { bins = BINS } = spec.table;
  requireKnown(isWhole(bins, BINS_MIN, BINS_MAX), "algorithm.bins");
  if (spec.trust.noise === "devices") bins = Math.min(bins, BINS);
  let start = 0;
  return [...spec.features].map(([name, feature]) => {
    const [{ codes, columns, cyclic = false }] = feature.blocks;
    const first = start;
    start += feature.columns;
    if (codes.length) return { start: first, bins: 0, codes, columns, missing: false, cyclic };
    const { ordered, levels, missing = false } = spec.tables[name];
    return { start: first, bins: ordered ? levels.length : bins, codes, columns: 1, missing, cyclic };
  });
}

/** The questions about a person's place in a table: the first is about nothing, each other about one feature. */
export class Questions {
  /** @param {import("../../spec.js").Spec} spec */
  constructor(spec) {
    this.features = listCells(spec);
    this.merges = spec.trust.noise !== "nobody";
    /** The place of each feature's first term; 0 is the term that everybody has. @type {number[]} */
    this.firsts = [];
    this.terms = this.features.reduce((sum, feature) => (this.firsts.push(sum), sum + countCells(feature)), 1);
    /** Each question's feature, and into how many parts the cells of one in order are merged; 0: into none. */
    this.asked = this.features.flatMap((feature, place) => {
      const coarser = this.merges ? COARSER.filter((parts) => parts < feature.bins) : [];
      return [0, ...coarser].map((parts) => ({ place, parts }));
    });
    this.sizes = [1, ...this.asked.map(({ place, parts }) => (parts ? parts + (this.features[place].missing ? 1 : 0) : countCells(this.features[place])))];
    let end = 0;
    /** The place of each question's first part among those of all. */
    this.starts = this.sizes.map((size) => (end += size) - size);
    this.parts = end;
    /** Where codes are among those of their feature. */
    this.orders = this.features.map(({ codes }) => new Map(codes.map((code, place) => [code, place])));
  }

  /** How many questions there are. */
  get count() {
    return this.sizes.length;
  }

  /** Whether a policy has the same. @param {any} decoded */
  is(decoded) {
    const features = decoded?.cells?.features;
    if (decoded?.merges !== this.merges || !Array.isArray(features) || features.length !== this.features.length) return false;
    return this.features.every((feature, i) => formatFields(features[i], feature));
  }

  /** The terms of a person's cells, one a feature. @param {number[]} columns */
  locate(columns) {
    const cells = new Int32Array(this.features.length);
    for (let i = 0; i < cells.length; i++) {
      const { start, bins, codes, columns: width, missing } = this.features[i];
      let cell = 0;
      if (codes.length) {
        for (let at = 0; at < width; at++) cell = 2 * cell + columns[start + at];
        cell = this.orders[i].get(cell) ?? codes.length - 1;
      } else {
        cell = missing && columns[start + 1] > 0.5 ? bins : Math.min(Math.floor(columns[start] * bins), bins - 1);
      }
      cells[i] = this.firsts[i] + cell;
    }
    return cells;
  }

  /** The part, within a question, of a person with these terms. @param {number} question @param {Int32Array} terms */
  part(question, terms) {
    if (question === 0) return 0;
    const { place, parts } = this.asked[question - 1];
    const [cell, { bins }] = [terms[place] - this.firsts[place], this.features[place]];
    if (!parts) return cell;
    // A missing number stays apart.
    return cell === bins ? parts : Math.floor((cell * parts) / bins);
  }
}
