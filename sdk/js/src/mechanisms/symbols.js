// @ts-check
/** What reports of one symbol have in common. */

export const REPORT_SIZE = 6;
/** Words of 64 bits that a report takes: of the bit, of keeping the symbol, of the uniform one. */
export const WORDS = 3;

/** 1 with the probability of a value in [0, 1], else -1. @param {number} value @param {bigint} word */
export const signOf = (value, word) => (Number(word >> 11n) * 2 ** -53 < value ? 1 : -1);

/** Coins and symbol. @param {number} slot @param {number} symbol */
export function report(slot, symbol) {
  const view = new DataView(new ArrayBuffer(REPORT_SIZE));
  view.setUint32(0, slot, true);
  view.setUint16(4, symbol, true);
  return new Uint8Array(view.buffer);
}
