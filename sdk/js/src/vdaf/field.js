// @ts-check
/** The field of 128 bits of Prio3, whose roots of unity make transforms fast. */

import { turboshake128 } from "./turboshake.js";

export const MODULUS = (4611686018427387897n << 66n) + 1n;
export const NUMBER_BYTES = 16;
const LOG_ORDER = 66;
const GENERATOR = power(7n, 4611686018427387897n);

/**
 * @param {bigint} number
 * @returns {bigint} the number modulo the prime, from 0
 */
export function reduce(number) {
  const rest = number % MODULUS;
  return rest < 0n ? rest + MODULUS : rest;
}

/**
 * @param {bigint} base
 * @param {bigint} exponent
 * @returns {bigint}
 */
export function power(base, exponent) {
  let [result, square] = [1n, base];
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = (result * square) % MODULUS;
    square = (square * square) % MODULUS;
  }
  return result;
}

/**
 * @param {readonly bigint[]} vector
 * @returns {Uint8Array<ArrayBuffer>} the numbers, each in little-endian order
 */
export function encode(vector) {
  const encoded = new Uint8Array(vector.length * NUMBER_BYTES);
  const view = new DataView(encoded.buffer);
  vector.forEach((number, index) => {
    view.setBigUint64(index * NUMBER_BYTES, BigInt.asUintN(64, number), true);
    view.setBigUint64(index * NUMBER_BYTES + 8, number >> 64n, true);
  });
  return encoded;
}

/**
 * Hash a message to uniform numbers: those of the hash that are too large are left out.
 * @param {Uint8Array<ArrayBuffer>} message
 * @param {number} length
 * @returns {bigint[]}
 */
export function expand(message, length) {
  for (let drawn = length; ; drawn++) {
    const stream = turboshake128(message, drawn * NUMBER_BYTES);
    const view = new DataView(stream.buffer, stream.byteOffset);
    const vector = [];
    for (let start = 0; start < stream.length; start += NUMBER_BYTES) {
      const number = view.getBigUint64(start, true) | (view.getBigUint64(start + 8, true) << 64n);
      if (number < MODULUS) vector.push(number);
    }
    if (vector.length >= length) return vector.slice(0, length);
  }
}

/** @type {Map<number, bigint[]>} */
const rootsByOrder = new Map();

/**
 * @param {number} order a power of 2
 * @returns {readonly bigint[]} the powers of a root of unity of that order, from 1 on
 */
function roots(order) {
  let powers = rootsByOrder.get(order);
  if (powers === undefined) {
    const root = power(GENERATOR, (1n << BigInt(LOG_ORDER)) / BigInt(order));
    powers = [1n];
    while (powers.length < order) powers.push((powers[powers.length - 1] * root) % MODULUS);
    rootsByOrder.set(order, powers);
  }
  return powers;
}

/**
 * Return polynomials' values at the odd roots of twice an order, given those at the roots of that order.
 * @param {readonly (readonly bigint[])[]} rows points; columns are polynomials of as many coefficients
 * @returns {bigint[][]}
 */
export function double(rows) {
  const n = rows.length;
  const scaled = transform([rows[0], ...rows.slice(1).reverse()]); // coefficients, times n
  const factor = power(BigInt(n), MODULUS - 2n);
  const shifts = roots(2 * n).slice(0, n).map((root) => (root * factor) % MODULUS);
  return transform(scaled.map((row, index) => row.map((number) => (number * shifts[index]) % MODULUS)));
}

/**
 * Evaluate polynomials at the roots of unity, given their coefficients (Cooley and Tukey).
 * @param {readonly (readonly bigint[])[]} rows
 * @returns {bigint[][]}
 */
function transform(rows) {
  const n = rows.length;
  if (n === 1) return [[...rows[0]]];
  const even = transform(rows.filter((_, index) => index % 2 === 0));
  const odd = transform(rows.filter((_, index) => index % 2 === 1));
  const turns = roots(n);
  const turned = odd.map((row, index) => row.map((number) => (number * turns[index]) % MODULUS));
  return [
    ...even.map((row, index) => row.map((number, column) => (number + turned[index][column]) % MODULUS)),
    ...even.map((row, index) => row.map((number, column) => reduce(number - turned[index][column]))),
  ];
}
