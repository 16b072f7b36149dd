// @ts-check
/** A symbol for a vector, or several: public random directions near to it, by subset selection. */

import { concatBytes } from "../bytes.js";
import { WORD, mix, readSeed } from "../coins.js";
import { requirePossible } from "../errors.js";
import { wordToNormal } from "../numerics.js";
import { composedCurve } from "../privacy/composed.js";
import { shuffledCurve } from "../privacy/curves.js";
import { SubsetResponse } from "../response.js";
import { Ball, dot, lengthOf } from "../vectors.js";
import { isNumber } from "../numbers.js";
import { Mechanism, isThere, isInteger, encodeReport } from "./symbols.js";

const CLASSES_MAX = 64;
const REPEATS_MAX = 16;
const COINS = (1n << 32n) - 1n;
const DIRECTIONS_MAX = 1024;
const PLACE = 0xd1342543de82ef95n;

export class VectorSymbol extends Mechanism {
  static TYPE = "vector-symbol";

  /** @param {any} decoded */
  constructor(decoded) {
    const { chosen, classes, directions, epsilon, seed, repeats = 1 } = decoded;
    const counts = { chosen: isInteger, classes: isInteger, directions: isInteger, repeats: isInteger };
    super({ ...decoded, repeats }, { ...counts, ball: isThere, epsilon: isNumber, seed: isThere }, 6, repeats * epsilon);
    requirePossible(repeats >= 1 && repeats <= REPEATS_MAX && (repeats === 1 || classes === 1), "repeats");
    const sized = classes >= 1 && classes <= CLASSES_MAX && directions >= 1 && directions <= DIRECTIONS_MAX;
    requirePossible(sized && chosen >= 1 && chosen <= directions, "directions");
    this.ball = new Ball(decoded.ball);
    /** Of a message; all messages of a report together cost the local epsilon. */
    this.epsilon = /** @type {number} */ (epsilon);
    this.messages = /** @type {number} */ (repeats);
    this.directions = /** @type {number} */ (directions);
    this.chosen = /** @type {number} */ (chosen);
    this.classes = /** @type {number} */ (classes);
    this.seed = readSeed(seed, 64n);
    this.response = new SubsetResponse(epsilon, 2 * this.directions, this.chosen);
    requirePossible(this.response.threshold > 0n, "epsilon");
  }

  /**
   * Were all people's first messages permuted apart, and so on, more would be seen: events that compose.
   * @param {number} honest @param {number} [points] of the grid on which several compose
   */
  shuffled(honest, points) {
    const symbols = (2 * this.directions) / this.chosen;
    return this.messages === 1 ? shuffledCurve(this.epsilon, symbols, honest) : composedCurve(this.epsilon, symbols, honest, this.messages, points);
  }

  /** A public unit vector, of one coordinate more than the ball has. @param {number} slot @param {number} index */
  direction(slot, index) {
    const word = mix(mix((BigInt(slot) + this.seed) & WORD) ^ mix(BigInt(index)));
    const normal = Array.from({ length: this.ball.coordinates + 1 }, (_, place) => {
      return wordToNormal(mix((word + BigInt(place) * PLACE) & WORD));
    });
    const length = lengthOf(normal);
    return normal.map((entry) => entry / length);
  }

  /** A person's own symbols, in no order; secret. @param {number} slot @param {number[]} vector */
  nearestSymbols(slot, vector) {
    const unit = this.ball.clip(vector).map((entry) => entry / this.ball.bound);
    const lifted = [...unit, Math.sqrt(Math.max(0, 1 - dot(unit, unit)))];
    const dots = Array.from({ length: this.directions }, (_, index) => dot(this.direction(slot, index), lifted));
    const nearest = dots.map((_, index) => index).sort((entry, other) => Math.abs(dots[other]) - Math.abs(dots[entry]));
    return nearest.slice(0, this.chosen).map((index) => 2 * index + (dots[index] > 0 ? 1 : 0));
  }

  /**
   * All messages, one after the other. Those after the first have fresh coins: the low bits of the words that are drawn
   * first. Then come a word of every message for keeping, one for which of its own symbols, and one for the uniform one.
   * @param {import("./index.js").Contribution} contribution @param {import("../platform.js").Noise} noise
   */
  randomize({ slot, vector }, noise) {
    const fresh = this.messages > 1 ? noise(this.messages - 1) : [];
    const slots = [slot, ...fresh.map((word) => Number(word & COINS))];
    const words = noise(3 * this.messages);
    const wordsOf = (/** @type {number} */ place) => [0, 1, 2].map((use) => words[use * this.messages + place]);
    return concatBytes(...slots.map((each, place) => encodeReport(each, this.response.randomize(this.nearestSymbols(each, vector), wordsOf(place)))));
  }
}
