// @ts-check
/** Validity circuits of Prio3, as far as a device needs them: bits, and outputs of which squares are added. */

/**
 * @typedef {object} Circuit
 * @property {number} nBits
 * @property {number} chunkLength bits that one call of the gadget checks
 * @property {readonly number[]} outputWeights of the bits of an output
 * @property {number} nOutputs
 * @property {number | null} centre of a ball: squares of outputs less this are added, too
 */

/** @param {Circuit} circuit */
export const countBitCalls = ({ nBits, chunkLength }) => Math.ceil(nBits / chunkLength);

/** @param {Circuit} circuit */
export const countCalls = (circuit) =>
  countBitCalls(circuit) + (circuit.centre === null ? 0 : Math.ceil(circuit.nOutputs / circuit.chunkLength));

/**
 * @param {Circuit} circuit
 * @returns {number} points of a wire's polynomial: a seed, the calls, and zeros up to a power of 2
 */
export const countPoints = (circuit) => 2 ** countCalls(circuit).toString(2).length;

/** @param {Circuit} circuit */
export const proofLength = (circuit) => 2 * circuit.chunkLength + 2 * countPoints(circuit) - 1;

/**
 * @param {number} maximum
 * @returns {number[]} weights of bits that make each whole number from 0 to a maximum, and none above it
 */
export function bitWeights(maximum) {
  const nBits = maximum.toString(2).length;
  const lower = Array.from({ length: nBits - 1 }, (_, place) => 2 ** place);
  return [...lower, maximum - 2 ** (nBits - 1) + 1];
}

/**
 * @param {number} number from 0 to the maximum
 * @param {number} maximum
 * @returns {number[]} bits of which `bitWeights` times each make the number
 */
export function encodeNumber(number, maximum) {
  const weights = bitWeights(maximum);
  const nLower = weights.length - 1;
  const isHigh = number >= 2 ** nLower;
  const rest = isHigh ? number - weights[nLower] : number;
  return [...weights.slice(0, nLower).map((weight) => Math.floor(rest / weight) % 2), Number(isHigh)];
}

/**
 * Make a circuit, with the chunk length of which its proof is shortest, the larger of two as good ones.
 * @param {number} nBits
 * @param {readonly number[]} outputWeights
 * @param {number} nOutputs
 * @param {number | null} [centre]
 * @returns {Circuit}
 */
function makeCircuit(nBits, outputWeights, nOutputs, centre = null) {
  const circuits = Array.from({ length: nBits }, (_, index) => ({
    nBits, chunkLength: index + 1, outputWeights, nOutputs, centre,
  }));
  return circuits.reduce((best, circuit) => (proofLength(circuit) <= proofLength(best) ? circuit : best));
}

/** @param {number} length @returns {Circuit} a vote for one of many cells */
export const histogram = (length) => makeCircuit(length, [1], length);

/** @param {readonly number[]} lengths @returns {Circuit} a vote in each of several consecutive blocks of cells */
export const blocks = (lengths) => histogram(lengths.reduce((sum, length) => sum + length, 0));

/** @param {number} length @param {number} maximum @returns {Circuit} a vector of whole numbers up to a maximum */
export function box(length, maximum) {
  const weights = bitWeights(maximum);
  return makeCircuit(length * weights.length, weights, length);
}

/** @param {number} length @param {number} unit @returns {Circuit} whole numbers, one a cell, that sum up to a unit */
export const simplex = (length, unit) => box(length, unit);

/** @param {number} length @param {number} maxWeight @returns {Circuit} votes for at most some of many cells */
export const multihot = (length, maxWeight) => makeCircuit(length + bitWeights(maxWeight).length, [1], length);

/**
 * @param {number} length
 * @param {number} maximum
 * @param {number} squaredRadius in half steps
 * @returns {Circuit} a vector in a box, near its centre
 */
export function ball(length, maximum, squaredRadius) {
  const weights = bitWeights(maximum).map((weight) => 2 * weight);
  return makeCircuit(length * weights.length + bitWeights(squaredRadius).length, weights, length, maximum);
}
