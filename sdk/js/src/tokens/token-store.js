// @ts-check
/** The upload tokens in a device's ledger: drawn, then signed, then tied to one report, and gone with it. */

import { areEqualBytes } from "../bytes.js";
import { digestOf, tokenMark } from "./token.js";

/**
 * A token for an endpoint. `token` is empty until the issuer has signed, and then request and inverse are: nothing ties the
 * token to the request for it. `expires` is when its key does, in seconds since 1970.
 * @typedef {import("./token.js").PendingToken & {endpoint: string, token: Uint8Array<ArrayBuffer>, expires: number}} Kept
 */

/** @typedef {import("../ledgers/ledger.js").Sealed} Sealed */
/** @typedef {import("../ledgers/ledger.js").Entry} Entry */

const NOTHING = new Uint8Array(0);
const isSigned = (/** @type {Kept} */ { token }) => token.length > 0;

/** @param {Entry} entry @param {Sealed} report */
const isPending = ({ waiting }, report) => waiting.find(({ endpoint, body }) => endpoint === report.endpoint && areEqualBytes(body, report.body));

/** An entry with another token for a report that waits. @param {Entry} entry @param {Sealed} report @param {Uint8Array<ArrayBuffer> | null} token */
function withToken(entry, report, token) {
  const waiting = isPending(entry, report);
  return { ...entry, waiting: entry.waiting.map((each) => (each === waiting ? { ...each, token } : each)) };
}

/** Tokens of the experiments in a ledger. Every change is one of the ledger's: at once and for good. */
export class TokenStore {
  /** @param {import("../ledgers/ledger.js").Ledger} ledger @param {import("../platform.js").Clock} clock */
  constructor(ledger, clock) {
    this.ledger = ledger;
    this.clock = clock;
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
      return [{ ...entry, tokens }, tokens.filter((each) => each.endpoint === endpoint && !isSigned(each))];
    });
  }

  /** Tokens for an endpoint that the issuer has not signed. @param {string} identity @param {string} endpoint */
  async pending(identity, endpoint) {
    return (await this.ledger.entry(identity)).tokens.filter((each) => each.endpoint === endpoint && !isSigned(each));
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

  /** Signed tokens that are left. @param {Entry} entry @param {string} endpoint */
  remaining(entry, endpoint) {
    return entry.tokens.filter((each) => each.endpoint === endpoint && isSigned(each) && each.expires > this.clock.now());
  }

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
   * The token that a waiting report comes with: the one of before, or one of those left; null: none is. Which one that is
   * tells nothing, since all are alike.
   * @param {string} identity @param {Sealed} report @returns {Promise<Uint8Array<ArrayBuffer> | null>}
   */
  async tie(identity, report) {
    const entry = await this.ledger.entry(identity);
    const pending = isPending(entry, report);
    if (!pending || pending.token || !this.remaining(entry, report.endpoint).length) return pending?.token ?? null;
    return this.ledger.store.change(identity, (now) => {
      const waiting = isPending(now, report);
      const [spare] = this.remaining(now, report.endpoint);
      if (!waiting || waiting.token || !spare) return [now, waiting?.token ?? null];
      const rest = { ...now, tokens: now.tokens.filter((each) => each !== spare) };
      return [withToken(rest, report, spare.token), spare.token];
    });
  }

  /** The token that a waiting report comes with; null: none. @param {string} identity @param {Sealed} report */
  async tied(identity, report) {
    return isPending(await this.ledger.entry(identity), report)?.token ?? null;
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
      const now = isPending(entry, report)?.token;
      const parted = now && areEqualBytes(now, token) ? withToken(entry, report, null) : entry;
      return { ...parted, tokens: entry.tokens.filter((each) => !isStray(each)) };
    });
  }

  /** Forget the token of a report, since no endpoint takes it any more. @param {string} identity @param {Sealed} report */
  untie(identity, report) {
    return this.ledger.set(identity, (entry) => withToken(entry, report, null));
  }
}
