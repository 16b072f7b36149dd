// @ts-check
/** What an experiment has found, as one document with its digest: docs/review.md says what its keys mean. */

import { hex, json, utf8 } from "../bytes.js";
import { unusable } from "../errors.js";
import { isObject } from "../inputs.js";
import { sha256 } from "../sealing.js";
import { formatCanonical } from "./canonical.js";

const FORMAT = 3;
const FAMILY = "privateer/export/";
const LONGEST = 64 << 20;
const GIVE = "give a file that privateer export wrote";
const STATUSES = ["open", "paused", "draining", "stopped", "finished", "failed"];

/** @param {any} value */
const isText = (value) => typeof value === "string";
/** @param {any} value */
const isTable = (value) => isObject(value) && !Array.isArray(value);
/** @param {any} value */
const isBase64 = (value) => isText(value) && value.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(value);

/** The keys of an export, with what each is, and how to tell. @type {Record<string, [string, (one: any) => boolean]>} */
const KEYS = {
  format: ["text", isText],
  experiment: ["text", isText],
  version: ["a whole number", Number.isSafeInteger],
  status: [`one of ${STATUSES.join(", ")}`, (value) => STATUSES.includes(value)],
  spec: ["an object", isTable],
  policy: ["an object", isTable],
  result: ["an object or null", (value) => value === null || isTable(value)],
  record: ["an object", isTable],
  state: ["base64", isBase64],
  publication: ["base64", isBase64],
  publication_digest: ["text", isText],
  digest: ["text", isText],
};

/**
 * An export, and the bytes of its publication.
 * @typedef {import("../answer.js").Answer | null} Result
 * @typedef {{experiment: string, version: number, status: import("../answer.js").Status, result: Result, published: Uint8Array<ArrayBuffer>}} Export
 */

/** Read and check the file that `privateer export NAME FILE.json` wrote. @param {string | Uint8Array} file @returns {Promise<Export>} */
export async function readExport(file) {
  const document = parseExport(file);
  if (!isTable(document)) throw unusable(`is not an export: ${GIVE}`);
  checkFormat(document.format);
  await checkDigest(document);
  checkKeys(document);
  const published = Uint8Array.from(atob(document.publication), (letter) => letter.charCodeAt(0));
  if (hex(await sha256(published)) !== document.publication_digest) {
    throw unusable("is damaged: its publication has another digest; export it again");
  }
  const { experiment, version, status, result } = document;
  return { experiment, version, status, result, published };
}

/** @param {string | Uint8Array} file @returns {any} */
function parseExport(file) {
  if (typeof file !== "string" && !(file instanceof Uint8Array)) throw unusable("give the file's text, or its bytes as a Uint8Array");
  if (file.length > LONGEST) throw unusable(`has more than ${LONGEST} bytes: ${GIVE}`);
  try {
    return typeof file === "string" ? JSON.parse(file) : json(file);
  } catch {
    throw unusable(`is damaged, or not JSON: ${GIVE}`);
  }
}

/** Refuse a document of another format, and say which way it differs. @param {any} name */
function checkFormat(name) {
  const [, number] = (isText(name) && /^privateer\/export\/([0-9]{1,9})$/.exec(name)) || [];
  if (number === undefined) throw unusable(`is not an export: ${GIVE}`);
  if (Number(number) === FORMAT) return;
  const [writer, remedy] = Number(number) > FORMAT ? ["a newer", "update Privateer here"] : ["an older", "export it again"];
  throw unusable(`was written by ${writer} Privateer, in the format ${name}; this one reads ${FAMILY}${FORMAT}: ${remedy}`);
}

/** @param {any} document */
async function checkDigest({ digest, ...rest }) {
  let text;
  try {
    text = formatCanonical(rest);
  } catch {
    throw unusable(`is not an export: it has a number, a text or a depth that JSON has not; ${GIVE}`);
  }
  if (hex(await sha256(utf8(text))) !== digest) {
    throw unusable("is damaged: its digest is another one; export it again, or take another copy");
  }
}

/** @param {any} document */
function checkKeys(document) {
  for (const [key, [wanted, holds]] of Object.entries(KEYS)) {
    if (!Object.hasOwn(document, key)) throw unusable(`is not an export: the key '${key}' is missing; ${GIVE}`);
    if (!holds(document[key])) throw unusable(`is not an export: the key '${key}' must be ${wanted}; ${GIVE}`);
  }
  const unknown = Object.keys(document).find((key) => !Object.hasOwn(KEYS, key));
  if (unknown !== undefined) throw unusable(`is not an export: there is no key ${JSON.stringify(unknown.slice(0, 40))}; ${GIVE}`);
}
