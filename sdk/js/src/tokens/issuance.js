// @ts-check
/** The upload tokens in a device's ledger on their way from the issuer: drawn, then signed. */

import { areEqualBytes } from "../bytes.js";
import { TokenStore, findWaiting, isSigned, withToken } from "./token-store.js";
import { digestOf, tokenMark } from "./token.js";

/** @typedef {import("./token-store.js").Kept} Kept */
/** @typedef {import("../ledgers/ledger.js").Sealed} Sealed */

const NOTHING = new Uint8Array(0);

/** Those for an endpoint that the issuer has not signed. @param {Kept[]} tokens @param {string} endpoint */
const selectUnsigned = (tokens, endpoint) => tokens.filter((each) => each.endpoint === endpoint && !isSigned(each));

/** Tokens of the experiments in a ledger, for whoever has an issuer. */
export class Issuance extends TokenStore {
  /** How many signed tokens are left. @param {string} identity @param {string} endpoint */
  async count(identity, endpoint) {
    return this.remaining(await this.ledger.entry(identity), endpoint).length;
  }

  /** How many reports wait without a token. @param {string} identity @param {string} endpoint */
  async bare(identity, endpoint) {
    const { waiting } = await this.ledger.entry(identity);
    return waiting.filter((each) => each.endpoint === endpoint && !each.token).length;
  }

  /**
   * Keep tokens that are about to be asked for, no more than are missing: another page of this device may have drawn some
   * meanwhile. Return all that the issuer has not signed.
   * @param {string} identity @param {string} endpoint @param {import("./token.js").PendingToken[]} fresh
   * @param {number} expires @param {number} count @returns {Promise<Kept[]>}
   */
  begin(identity, endpoint, fresh, expires, count) {
    return this.ledger.store.change(identity, (entry) => {
      const missing = count - entry.tokens.filter((each) => each.endpoint === endpoint).length;
      const added = fresh.slice(0, Math.max(0, missing)).map((each) => ({ ...each, endpoint, token: NOTHING, expires }));
      const tokens = [...entry.tokens, ...added];
      return [{ ...entry, tokens }, selectUnsigned(tokens, endpoint)];
    });
  }

  /** Tokens for an endpoint that the issuer has not signed. @param {string} identity @param {string} endpoint */
  async pending(identity, endpoint) {
    return selectUnsigned((await this.ledger.entry(identity)).tokens, endpoint);
  }

  /** Keep the signed token, and forget what could tie it to the request for it. @param {string} identity
   * @param {import("./token.js").PendingToken} pending @param {Uint8Array<ArrayBuffer>} token */
  finish(identity, { input }, token) {
    const signed = (/** @type {Kept} */ each) => (areEqualBytes(each.input, input) ? { ...each, token, request: NOTHING, inverse: NOTHING } : each);
    return this.ledger.set(identity, ({ tokens }) => ({ tokens: tokens.map(signed) }));
  }

  /** Forget a token that nobody will sign. @param {string} identity @param {import("./token.js").PendingToken} pending */
  drop(identity, { input }) {
    return this.ledger.set(identity, ({ tokens }) => ({ tokens: tokens.filter((each) => !areEqualBytes(each.input, input)) }));
  }

  /** Forget tokens left that are for another challenge, and those that have expired. @param {string} identity @param {string} endpoint @param {Uint8Array} digest */
  keepOnly(identity, endpoint, digest) {
    const now = this.clock.now();
    const isGood = (/** @type {Kept} */ each) => each.expires > now && (each.endpoint !== endpoint || areEqualBytes(digestOf(each.input), digest));
    return this.ledger.set(identity, ({ tokens }) => ({ tokens: tokens.filter(isGood) }));
  }

  /** The token that a waiting report comes with; null: none. @param {string} identity @param {Sealed} report */
  async tied(identity, report) {
    return findWaiting(await this.ledger.entry(identity), report)?.token ?? null;
  }

  /** Those of the signed tokens left that have none of these marks. @param {string} identity @param {string} endpoint @param {Uint8Array[]} marks */
  async strays(identity, endpoint, marks) {
    const remaining = this.remaining(await this.ledger.entry(identity), endpoint);
    return remaining.filter(({ token }) => !marks.some((mark) => areEqualBytes(mark, tokenMark(token))));
  }

  /**
   * Forget the token of a report, unless it has another one by now, and tokens left that are no better.
   * @param {string} identity @param {Sealed} report @param {Uint8Array} token @param {Kept[]} strays
   */
  part(identity, report, token, strays) {
    const isStray = (/** @type {Kept} */ each) => strays.some(({ input }) => areEqualBytes(input, each.input));
    return this.ledger.set(identity, (entry) => {
      const now = findWaiting(entry, report)?.token;
      const parted = now && areEqualBytes(now, token) ? withToken(entry, report, null) : entry;
      return { ...parted, tokens: entry.tokens.filter((each) => !isStray(each)) };
    });
  }
}
