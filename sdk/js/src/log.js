// @ts-check
/** A server's key, and its public log: what is published is signed, in the log, and the log only grows. */

import { concatBytes, areEqualBytes, unhex, utf8 } from "./bytes.js";
import { PrivateerError } from "./errors.js";
import { Peaks, provesConsistency, provesInclusion, leafHash } from "./merkle.js";
import { encode } from "./msgpack.js";
import { isWhole } from "./numbers.js";
import { getSubtleCrypto } from "./platform.js";
import { sha256 } from "./sealing.js";

const PURPOSE = utf8("privateer/publication/1\0");
const SIGNED = /^([0-9a-f]{64})\.([0-9a-f]{128})$/;
const HEAD = /^(privateer\/log\/[0-9a-f]{16})\n(0|[1-9][0-9]{0,14})\n([A-Za-z0-9+/]{43}=)\n(?:[^\n]+\n)*$/;
const NOTE_MAX = 4096;
const BLOCK = 32;

/** @typedef {{origin: string, size: number, root: Uint8Array<ArrayBuffer>, signed: string}} Head */
/** @typedef {{key: string, head: string}} Known a server's key (hexadecimal), and the last head of its log */

/** @param {string} type @param {string} detail @param {string} field */
const makeLogError = (type, detail, field) => new PrivateerError(type, detail, field);
const makeUnsignedError = (/** @type {string} */ field) => makeLogError("signature-invalid", "the server has not signed this", field);
const makeUnprovedError = (/** @type {string} */ field) => makeLogError("proof-invalid", "the proof does not lead to the head", field);
export const makeKeyChangedError = () => makeLogError("key-changed", "the server signs with another key", "serverKey");
const makeForkedError = () => makeLogError("log-forked", "the log is no continuation of its last head", "head");

/** @param {string} text */
function decodeBase64(text) {
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    throw makeUnprovedError("proof");
  }
}

/** @param {string} key @param {Uint8Array<ArrayBuffer>} signature @param {Uint8Array<ArrayBuffer>} data */
async function verifySignature(key, signature, data) {
  try {
    const raw = unhex(key);
    const imported = await getSubtleCrypto().importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);
    return await getSubtleCrypto().verify({ name: "Ed25519" }, imported, signature, data);
  } catch {
    return false;
  }
}

/**
 * The key that signed a publication.
 * @param {string} header @param {Uint8Array<ArrayBuffer>} body
 * @param {string[]} knownKeys keys that the server may have; empty: any, since it is met for the first time
 */
export async function verifySigner(header, body, knownKeys) {
  const [, key, signature] = SIGNED.exec(header) ?? [];
  if (!key) throw makeUnsignedError("privateer-signed");
  if (knownKeys.length && !knownKeys.includes(key)) throw makeKeyChangedError();
  const signed = concatBytes(PURPOSE, await sha256(body));
  if (!(await verifySignature(key, unhex(signature), signed))) throw makeUnsignedError("privateer-signed");
  return key;
}

/** What stops a device: an old head, which somebody in between may repeat, and a fork, which signatures prove. All else is unsigned. */
const CONTRADICTIONS = ["log-rollback", "log-forked"];

/** Whether evidence is of a server that contradicted itself; null: nothing is known. @param {string | null} evidence */
export const findContradiction = (evidence) => evidence !== null && !JSON.parse(evidence).answered && CONTRADICTIONS.includes(JSON.parse(evidence).problem);

/** Whether evidence is of a log that went back, and nothing worse, and stands. @param {string | null} evidence */
export const isRollback = (evidence) => findContradiction(evidence) && JSON.parse(evidence ?? "").problem === "log-rollback";

/** How strong evidence is. @param {string} evidence */
const rankEvidence = (evidence) => CONTRADICTIONS.indexOf(JSON.parse(evidence).problem);

/** Whether evidence is kept in the place of what there is: the stronger, and of like ones the first to stand. @param {string} evidence @param {string | null} before */
export const outweighs = (evidence, before) =>
  before === null || rankEvidence(evidence) > rankEvidence(before) || (rankEvidence(evidence) === rankEvidence(before) && !findContradiction(before));

/** The refusal of a server that contradicted itself. @param {string} evidence @param {string} server */
export const contradictionError = (evidence, server) =>
  makeLogError(
    JSON.parse(evidence).problem,
    `the server contradicted itself: publish it (client.evidence), or trust the server anew (ledger.forgetServer("${server}"))`,
    "evidence",
  );

/** What a head says that this key has signed. @param {string} signed @param {string} key @returns {Promise<Head>} */
export async function openHead(signed, key) {
  const end = signed.lastIndexOf("\n\n");
  const text = signed.slice(0, end + 1);
  const [, origin, size, root] = HEAD.exec(text) ?? [];
  if (end < 0 || !origin || signed.length > NOTE_MAX) throw makeUnsignedError("head");
  const named = concatBytes(utf8(`${origin}\n`), [1], unhex(key));
  const id = (await sha256(named)).slice(0, 4);
  for (const line of signed.slice(end + 2).split("\n")) {
    const stamp = line.startsWith(`— ${origin} `) ? decodeBase64(line.slice(`— ${origin} `.length)) : new Uint8Array(0);
    if (!areEqualBytes(stamp.slice(0, 4), id)) continue;
    if (!(await verifySignature(key, stamp.slice(4), utf8(text)))) break;
    return { origin, size: Number(size), root: decodeBase64(root), signed };
  }
  throw makeUnsignedError("head");
}

/** @param {any} text @param {string} field */
function decodeHashes(text, field) {
  const all = typeof text === "string" ? decodeBase64(text) : new Uint8Array(1);
  if (all.length % 32) throw makeUnprovedError(field);
  return Array.from({ length: all.length / 32 }, (_, place) => all.slice(32 * place, 32 * place + 32));
}

/**
 * Refuse a proof, asked for without a block, with fewer of the last leaves than the size of its head asks for: a server
 * that tells little would learn who has a head already, and in which block.
 * @param {any} proof @param {string} key @param {Head | null} last
 */
export async function checkStart(proof, key, last) {
  if (typeof proof?.head !== "string") throw makeUnprovedError("proof");
  const head = await openHead(proof.head, key);
  checkOrder(head, last);
  if (!(proof.start <= BLOCK * Math.max(0, Math.floor((head.size - 1) / BLOCK) - 1))) throw makeUnprovedError("start");
}

/** The block to ask for, if a proof says nothing of the last head; null if it does. @param {any} proof @param {Head | null} last */
export const continuationBlock = (proof, last) => (last && last.size < proof?.start ? Math.floor(last.size / BLOCK) : null);

/**
 * The head of a proof that shows that an entry is in the log, and that the log continues the last head.
 * @param {any} proof @param {Uint8Array<ArrayBuffer>} entry @param {string} key @param {Head | null} last
 */
export async function checkProof(proof, entry, key, last) {
  if (typeof proof?.head !== "string") throw makeUnprovedError("proof");
  const head = await openHead(proof.head, key);
  checkOrder(head, last);
  const { index, start } = proof;
  if (!isWhole(index, 0) || !isWhole(start, 0)) throw makeUnprovedError("proof");
  const isIn = await provesInclusion(await leafHash(entry), index, head.size, decodeHashes(proof.inclusion, "inclusion"), head.root);
  if (!isIn) throw makeLogError("proof-invalid", "the publication is not in the server's log", "inclusion");
  const peaks = new Peaks(start, decodeHashes(proof.peaks, "peaks"));
  if (!peaks.fits || start % BLOCK || continuationBlock(proof, last) !== null) throw makeUnprovedError("peaks");
  let root = last?.size === peaks.size ? await peaks.root() : null;
  for (const leaf of decodeHashes(proof.leaves, "leaves")) {
    await peaks.add(leaf);
    if (last?.size === peaks.size) root = await peaks.root();
  }
  const path = decodeHashes(proof.consistency, "consistency");
  if (!(await provesConsistency(peaks.size, await peaks.root(), head.size, head.root, path))) throw makeUnprovedError("consistency");
  if (last && last.size > peaks.size) throw makeUnprovedError("leaves");
  if (last?.size && !(root && areEqualBytes(root, last.root))) throw makeForkedError();
  return head;
}

/** Refuse a head that cannot come after the last one. @param {Head} head @param {Head | null} last */
function checkOrder(head, last) {
  if (!last) return;
  if (head.origin !== last.origin) throw makeLogError("key-changed", "the server keeps another log", "head");
  if (head.size < last.size) throw makeLogError("log-rollback", "the head of the log is older than the last one", "head");
  if (head.size === last.size && !areEqualBytes(head.root, last.root)) throw makeForkedError();
}

/** @param {string} experiment @param {number} version @param {Uint8Array<ArrayBuffer>} digest */
export const encodeEntry = (experiment, version, digest) => encode([experiment, version, digest]);
