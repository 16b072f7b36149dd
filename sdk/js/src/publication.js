// @ts-check
/** The publication of a round: one immutable document, named by its digest. */

import { malformed } from "./errors.js";
import { decode } from "./msgpack.js";
import { sha256 } from "./sealing.js";

/** The public facts of a round. */
export class Round {
  /** @param {any} told */
  constructor(told) {
    check(Array.isArray(told) && told.length >= 6 && told.length <= 10);
    const [experiment, version, model, batch, sealedSize, publicKey, messages = 1, least = 0, deadline = 0, groups = 1] = told;
    check(typeof experiment === "string" && /^[a-z]{1,16}$/.test(model));
    check([version, batch, sealedSize, messages, least, deadline, groups].every((one) => Number.isSafeInteger(one) && one >= 0));
    check(version >= 1 && sealedSize >= 1 && messages >= 1 && least <= batch && (least > 0 || deadline === 0));
    check(groups >= 1 && messages % groups === 0);
    check(publicKey instanceof Uint8Array && publicKey.length === 32);
    this.experiment = /** @type {string} */ (experiment);
    this.version = /** @type {number} */ (version);
    this.model = /** @type {string} */ (model);
    this.batch = /** @type {number} */ (batch);
    this.sealedSize = /** @type {number} */ (sealedSize);
    this.publicKey = /** @type {Uint8Array<ArrayBuffer>} */ (publicKey);
    this.messages = /** @type {number} */ (messages);
    this.fewest = /** @type {number} */ (deadline ? least : batch);
    this.deadline = /** @type {number} */ (deadline);
    this.groups = /** @type {number} */ (groups);
  }
}

/**
 * Read a publication.
 * @param {Uint8Array<ArrayBuffer>} body
 */
export async function readPublication(body) {
  const told = decode(body);
  check(Array.isArray(told) && told.length >= 3 && told.length <= 5);
  const [round, spec, policy, , drain = null] = told;
  check(spec instanceof Uint8Array && policy instanceof Uint8Array);
  check(drain === null || (Array.isArray(drain) && drain.length === 2 && drain[1] instanceof Uint8Array));
  const facts = new Round(round);
  check(drain === null || facts.batch > 0);
  return {
    round: facts,
    spec: /** @type {Uint8Array<ArrayBuffer>} */ (spec),
    policy: decode(policy),
    drain: drain === null ? null : decode(drain[1]),
    digest: await sha256(body),
    keyId: (await sha256(facts.publicKey)).slice(0, 8),
  };
}

/** @param {boolean} good */
function check(good) {
  if (!good) throw malformed("this is not a publication");
}
