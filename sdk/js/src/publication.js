// @ts-check
/** The publication of a round: one immutable document, named by its digest. */

import { requireKnown } from "./errors.js";
import { decode } from "./msgpack.js";
import { isWhole } from "./numbers.js";
import { sha256 } from "./sealing.js";

/** The public facts of a round. */
export class Round {
  /** @param {any} decoded */
  constructor(decoded) {
    requireKnown(Array.isArray(decoded) && decoded.length >= 6 && decoded.length <= 10, "publication");
    const [experiment, version, model, batchSize, sealedSize, publicKey, messages = 1, least = 0, deadline = 0, groups = 1] = decoded;
    requireKnown(typeof experiment === "string" && /^[a-z]{1,16}$/.test(model), "publication");
    requireKnown([version, batchSize, sealedSize, messages, least, deadline, groups].every((field) => isWhole(field, 0)), "publication");
    requireKnown(version >= 1 && sealedSize >= 1 && messages >= 1 && least <= batchSize && (least > 0 || deadline === 0), "publication");
    requireKnown(groups >= 1 && messages % groups === 0, "publication");
    requireKnown(publicKey instanceof Uint8Array && publicKey.length === 32, "publication");
    this.experiment = /** @type {string} */ (experiment);
    this.version = /** @type {number} */ (version);
    this.model = /** @type {string} */ (model);
    this.batchSize = /** @type {number} */ (batchSize);
    this.sealedSize = /** @type {number} */ (sealedSize);
    this.publicKey = /** @type {Uint8Array<ArrayBuffer>} */ (publicKey);
    this.messages = /** @type {number} */ (messages);
    this.fewest = /** @type {number} */ (deadline ? least : batchSize);
    this.deadline = /** @type {number} */ (deadline);
    this.groups = /** @type {number} */ (groups);
  }
}

/**
 * Read a publication.
 * @param {Uint8Array<ArrayBuffer>} body
 */
export async function readPublication(body) {
  const decoded = decode(body);
  requireKnown(Array.isArray(decoded) && decoded.length >= 3 && decoded.length <= 5, "publication");
  const [round, spec, policy, , drain = null] = decoded;
  requireKnown(spec instanceof Uint8Array && policy instanceof Uint8Array, "publication");
  requireKnown(drain === null || (Array.isArray(drain) && drain.length === 2 && drain[1] instanceof Uint8Array), "publication");
  const facts = new Round(round);
  requireKnown(drain === null || facts.batchSize > 0, "publication");
  return {
    round: facts,
    spec: /** @type {Uint8Array<ArrayBuffer>} */ (spec),
    policy: decode(policy),
    drain: drain === null ? null : decode(drain[1]),
    digest: await sha256(body),
    keyId: (await sha256(facts.publicKey)).slice(0, 8),
  };
}
