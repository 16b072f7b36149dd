// @ts-check
/** How columns in [0, 1] become the coordinates of a context: 1, and what each block of columns says. */

import { formatFields } from "../../errors.js";

/** @typedef {import("../../features.js").Block} Block */

/** @param {Block} block */
const width = ({ codes, cyclic }) => (cyclic ? 2 : codes.length > 2 ? codes.length : 1);

export class Design {
  /** @param {import("../../spec.js").Spec} spec */
  constructor(spec) {
    this.blocks = [...spec.features.values()].flatMap((feature) => feature.blocks);
    this.dimension = this.blocks.reduce((sum, block) => sum + width(block), 1);
  }

  /** Whether a policy has the same. @param {any} decoded */
  is(decoded) {
    const blocks = decoded?.blocks;
    if (!Array.isArray(blocks) || blocks.length !== this.blocks.length) return false;
    return this.blocks.every((block, i) => formatFields(blocks[i], { cyclic: false, ...block }));
  }

  /** A number is in [-1, 1], one that comes round a point of the unit circle, yes and no are 1 and -1, and one of several levels is one-hot. @param {number[]} columns */
  row(columns) {
    const row = [1];
    let start = 0;
    for (const [place, block] of this.blocks.entries()) {
      const values = columns.slice(start, start + block.columns);
      start += block.columns;
      const angle = 2 * Math.PI * values[0];
      // Who has no number is at the centre of the circle.
      if (block.flags && this.blocks[place - 1]?.cyclic) row.push(...row.splice(-2).map((entry) => entry * (1 - values[0])));
      if (block.flags) row.push(...values);
      else if (block.cyclic) row.push(Math.sin(angle), Math.cos(angle));
      else if (width(block) === 1) row.push(2 * values[0] - 1);
      else {
        const code = values.reduce((sum, bit) => 2 * sum + bit, 0);
        row.push(...block.codes.map((entry) => (entry === code ? 1 : 0)));
      }
    }
    return row;
  }
}
