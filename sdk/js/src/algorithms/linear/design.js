// @ts-check
/** How columns in [0, 1] become the coordinates of a context: 1, and what each block of columns says. */

/** @typedef {import("../../features.js").Block} Block */

/** @param {Block} block */
const width = ({ codes }) => (codes.length > 2 ? codes.length : 1);

export class Design {
  /** @param {import("../../spec.js").Spec} spec */
  constructor(spec) {
    this.blocks = [...spec.features.values()].flatMap((feature) => feature.blocks);
    this.dimension = this.blocks.reduce((sum, block) => sum + width(block), 1);
  }

  /** Whether a policy has the same. @param {any} told */
  is(told) {
    const blocks = told?.blocks;
    if (!Array.isArray(blocks) || blocks.length !== this.blocks.length) return false;
    return this.blocks.every(({ columns, codes, flags }, i) => {
      const other = blocks[i];
      return other.columns === columns && other.flags === flags && Array.isArray(other.codes) && other.codes.join() === codes.join();
    });
  }

  /** A number is in [-1, 1], yes and no are 1 and -1, and one of several levels is one-hot. @param {number[]} columns */
  row(columns) {
    const row = [1];
    let start = 0;
    for (const block of this.blocks) {
      const own = columns.slice(start, start + block.columns);
      start += block.columns;
      if (block.flags) row.push(...own);
      else if (width(block) === 1) row.push(2 * own[0] - 1);
      else {
        const code = own.reduce((sum, bit) => 2 * sum + bit, 0);
        row.push(...block.codes.map((one) => (one === code ? 1 : 0)));
      }
    }
    return row;
  }
}
