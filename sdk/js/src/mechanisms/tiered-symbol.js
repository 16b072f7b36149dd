// @ts-check
/** A signed symbol at the epsilon of each tier, of which people choose one. */

import { concatBytes, encodeLittleEndian } from "../bytes.js";
import { Layout } from "../coins.js";
import { refused, requireKnown } from "../errors.js";
import { hasFraction } from "../msgpack.js";
import { isNumber } from "../numbers.js";
import { SignedSymbol } from "./signed-symbol.js";
import { Mechanism, isThere } from "./symbols.js";

const ALPHABET_MAX = 65_536;
const NAMES = ["buckets", "elsewhere", "epsilon", "share"];

export class TieredSymbol extends Mechanism {
  static TYPE = "tiered-symbol";

  /** @param {any} decoded the mechanism of the terms @param {number} tier of the person */
  constructor(decoded, tier = 0) {
    const { channels, layout } = decoded;
    if (!Array.isArray(channels) || !channels.length) throw refused("there is no such tier", "tier");
    // Another number of tiers than the spec's is refused with the terms.
    const place = Math.min(tier, channels.length - 1);
    const symbols = channels.map((channel) => readSymbol(channel, layout));
    super(decoded, { layout: isThere, channels: Array.isArray }, 6, symbols[place].localEpsilon);
    if (symbols.reduce((sum, symbol) => sum + symbol.symbols, 0) > ALPHABET_MAX) throw refused("the tiers have too many symbols", "channels");
    this.layout = Layout.read(layout);
    /** How many tiers there are. */
    this.tiers = channels.length;
    this.symbol = symbols[place];
    /** Symbols of the tiers before this one. */
    this.first = symbols.slice(0, place).reduce((sum, symbol) => sum + symbol.symbols, 0);
  }

  /**
   * Randomize what a person contributes, by the symbol of their tier, in its own part of the alphabet.
   * @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise
   */
  randomize(contribution, noise) {
    const report = this.symbol.randomize(contribution, noise);
    return concatBytes(report.slice(0, 4), encodeLittleEndian(2, report[4] + 256 * report[5] + this.first));
  }
}

/** @param {any} channel @param {any} layout */
function readSymbol(channel, layout) {
  const { share, ...parameters } = channel;
  requireKnown(`${Object.keys(channel).sort()}` === `${NAMES}` && isNumber(share) && !hasFraction(channel, "buckets"), "mechanism.channels");
  return new SignedSymbol({ type: SignedSymbol.TYPE, layout, ...parameters });
}
