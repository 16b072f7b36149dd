// @ts-check
/** Bytes in headers and JSON. */

import { malformed } from "../errors.js";

/** With padding. @param {Uint8Array} bytes */
export const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_");

/** The bytes of a text with padding; nothing else has the same bytes. @param {unknown} text @returns {Uint8Array<ArrayBuffer>} */
export function unbase64url(text) {
  if (typeof text === "string" && /^[A-Za-z0-9_-]*={0,2}$/.test(text)) {
    try {
      const letters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
      const decoded = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
      if (base64url(decoded) === text) return decoded;
    } catch {
      // It is no base64, as below.
    }
  }
  throw malformed("not base64url with padding");
}
