// @ts-check
/** Linear and generalized linear bandits: Thompson sampling by public coins. */

import { readArray, findTrue } from "../arrays.js";
import { WORD, chooseClass, mix, readSeed } from "../coins.js";
import { formatFields, requireKnown } from "../errors.js";
import { isWhole, isWithin } from "../numbers.js";
import { wordToNormal } from "../numerics.js";
import { lengthOf, multiplyRow, dot } from "../vectors.js";
import { Design } from "./linear/design.js";
import { applyLink, clipRow, SHORTEST, encodeSquares } from "./linear/reports.js";
import { Policy, readPlayable } from "./policy.js";

const LARGEST = 1e6;
const COORDINATES_MAX = 1 << 16;
const MESSAGES_MAX = 16;
const ARM = 0x9fb21c651e98df25n;
const MATRIX = Math.sqrt(1 / 3);
const PRODUCT = Math.sqrt(2 / 3);
/** Shares of second moments: where noise is a curator's; a batch's, at so many coordinates; a report's own, from such an epsilon. */
const [CURATED, BATCHED, FEW, ALONE, CLEAR] = [0.3, 0.1, 5, 0.1, 3];

export class LinearPolicy extends Policy {
  /** @type {import("../trust.js").Question} */
  static QUESTION = "directions";

  /** @param {any} decoded the policy as decoded @param {import("../spec.js").Spec} spec */
  constructor(decoded, spec) {
    super(decoded, spec);
    this.design = new Design(spec);
    this.link = decoded.link;
    const [arms, d] = [spec.arms.length, this.design.dimension];
    this.means = splitMatrices(decoded.means, [arms, d])[0];
    this.factors = splitMatrices(decoded.factors, [arms, d, d]);
    this.whitening = splitMatrices(decoded.whitening, [d, d])[0];
    this.telling = splitMatrices(decoded.telling, [d, d])[0];
    this.exploration = decoded.exploration;
    this.playable = readPlayable(decoded, spec);
    /** Arms that people may get. */
    this.played = findTrue(this.playable);
    this.favours = decoded.favours;
    this.share = decoded.share;
    this.seed = readSeed(decoded.seed);
    this.classes = decoded.terms.mechanism.classes ?? 1;
    // Those of a choice are sent only if they tell a class.
    this.freshCoins = this.classes === 1;
    this.check(decoded, spec);
  }

  /** @param {any} decoded @param {import("../spec.js").Spec} spec */
  check(decoded, spec) {
    const isJoint = spec.table.report_statistic === "joint";
    const share = isJoint ? 1 : this.shareOf(spec);
    const mayFavour = spec.armInKey && spec.trust.crowd === "batch";
    const favoured = this.favours === -1 || (mayFavour && this.playable[this.favours] === 1);
    const isSameDesign = this.design.is(decoded.design) && this.link === spec.table.link && this.share === share;
    const ranged = isWithin(this.exploration, 0, 1);
    const classes = isJoint || spec.armInKey ? 1 : this.played.length;
    const { ball, repeats = 1 } = decoded.terms.mechanism;
    const { norm, bound, coordinates } = ball ?? {};
    // A curator makes the vectors itself.
    this.sendsRows = spec.trust.curator !== "nobody";
    const isAsked = this.sendsRows
      ? formatFields(ball ?? {}, { arms: this.means.length, dimension: this.design.dimension, share })
      : norm === (isJoint && spec.trust.crowd === "nobody" ? "joint" : "l2") && bound === 1 && coordinates === this.coordinates;
    const asks = isAsked && this.coordinates <= COORDINATES_MAX && [1, classes].includes(this.classes);
    const isWithinMessages = repeats <= findMaxMessages(spec);
    requireKnown(isSameDesign && ranged && favoured && asks && isWithinMessages);
  }

  /** Share of a report that is second moments of contexts. @param {import("../spec.js").Spec} spec */
  shareOf({ trust, privacy, asAlone }) {
    if (trust.noise !== "devices") return CURATED;
    if (trust.crowd === "batch" && !asAlone) return Math.min(CURATED, BATCHED * Math.sqrt(this.design.dimension / FEW));
    return (privacy.epsilon ?? 0) >= CLEAR ? ALONE : 0;
  }

  /** Length of a person's vector. */
  get coordinates() {
    const [arms, d] = [this.means.length, this.design.dimension];
    const pairs = (d * (d + 1)) / 2;
    return this.share === 1 ? arms * (pairs + d) : arms * d + (this.share ? pairs : 0);
  }

  /** @param {number[]} columns @param {number} slot @returns {number} an arm */
  decide(columns, slot) {
    const row = this.design.row(columns);
    const normals = this.normals(slot);
    const scores = this.means.map((mean, arm) => {
      if (!this.playable[arm]) return -Infinity;
      const length = this.exploration ? lengthOf(multiplyRow(row, this.factors[arm])) : 0;
      return dot(row, mean) + this.exploration * normals[arm] * length;
    });
    return scores.indexOf(Math.max(...scores));
  }

  /** The normal coins of every arm, of which those arms that are played have the largest at one that is public. @param {number} slot */
  normals(slot) {
    const word = mix((BigInt(slot) + this.seed) & WORD);
    const normals = this.means.map((_, arm) => {
      return wordToNormal(mix(word ^ mix((BigInt(arm + 1) * ARM) & WORD)));
    });
    const { played } = this;
    const block = this.favours >= 0 ? this.favours : played[chooseClass(slot, this.seed, played.length)];
    const largest = played.reduce((best, arm) => (normals[arm] > normals[best] ? arm : best));
    [normals[block], normals[largest]] = [normals[largest], normals[block]];
    return normals;
  }

  /** A person's vector, in which the arm is the place of a block; or what a curator makes it of. @param {number[]} columns @param {number} arm @param {number[]} values as `read` gave them */
  contribute(columns, arm, values) {
    const row = this.design.row(columns);
    const [toldRow, isJoint] = [multiplyRow(row, this.telling), this.share === 1];
    const mean = applyLink(this.link, dot(row, this.means[arm]));
    const value = isJoint ? 2 * values[0] - 1 : (values[0] - mean) / Math.max(mean, 1 - mean);
    if (this.sendsRows) return { arm, row: toldRow, value };
    if (isJoint) {
      const products = clipRow(toldRow).map((entry) => PRODUCT * value * entry);
      return { vector: this.inBlock([...encodeSquares(toldRow).map((entry) => MATRIX * entry), ...products], arm) };
    }
    const white = multiplyRow(row, this.whitening);
    const length = Math.max(lengthOf(white), SHORTEST);
    const block = this.inBlock(white.map((entry) => (value * entry) / length), arm);
    if (!this.share) return { vector: block };
    const moments = encodeSquares(toldRow).map((entry) => Math.sqrt(this.share) * entry);
    return { vector: [...block.map((entry) => Math.sqrt(1 - this.share) * entry), ...moments] };
  }

  /** @param {number[]} block @param {number} arm */
  inBlock(block, arm) {
    return this.means.flatMap((_, place) => (place === arm ? block : block.map(() => 0)));
  }
}

/** The most messages that a report may be: several only where a crowd makes them cheap, and coins tell no arm. @param {import("../spec.js").Spec} spec */
function findMaxMessages({ table, trust, armInKey, reports }) {
  const { messages_per_report: messages = 1, report_statistic: statistic } = table;
  const may = trust.crowd === "batch" && armInKey && statistic !== "joint" && reports === 1;
  requireKnown(isWhole(messages, 1, may ? MESSAGES_MAX : 1), "algorithm.messages_per_report");
  return messages;
}

/** Matrices of an array of two or three axes. @param {any} decoded @param {number[]} shape @returns {number[][][]} */
function splitMatrices(decoded, shape) {
  const { values, shape: actualShape } = readArray(decoded, "<f8", shape.length);
  requireKnown(actualShape.join() === shape.join() && values.every((entry) => Math.abs(entry) <= LARGEST));
  const [rows, columns] = shape.slice(-2);
  return Array.from({ length: values.length / (rows * columns) }, (_, i) =>
    Array.from({ length: rows }, (_, row) => values.slice((i * rows + row) * columns, (i * rows + row + 1) * columns)),
  );
}
