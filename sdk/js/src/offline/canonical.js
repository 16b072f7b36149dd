// @ts-check
/** JSON as RFC 8785 has it: one text for one document, so that a digest of it means the same to everybody. */

import { isObject } from "../inputs.js";

/**
 * The canonical text of a value of JSON. Keys are in the order of their UTF-16 code units; numbers and text are written
 * as the language itself writes them.
 * @param {any} value @returns {string}
 */
export function formatCanonical(value) {
  if (Array.isArray(value)) return `[${value.map(formatCanonical).join(",")}]`;
  if (isObject(value)) {
    const rows = Object.keys(value).sort().map((key) => `${formatText(key)}:${formatCanonical(value[key])}`);
    return `{${rows.join(",")}}`;
  }
  if (typeof value === "number" && !Number.isFinite(value)) throw new RangeError("a number is not finite");
  return formatText(value);
}

/** @param {string | number | boolean | null} value */
function formatText(value) {
  if (typeof value === "string" && /\p{Surrogate}/u.test(value)) throw new RangeError("a text has half a character");
  return JSON.stringify(value);
}
