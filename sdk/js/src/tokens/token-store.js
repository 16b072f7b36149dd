// @ts-check
/** The upload tokens in a device's ledger: signed, then tied to one report, and gone with it. */

import { areEqualBytes } from "../bytes.js";
import { formatAuthorization } from "./token.js";

/** What endpoints say of tokens that they will never take. */
const WORN = new Set(["token-spent", "token-expired"]);

/**
 * A token for an endpoint. `token` is empty until the issuer has signed, and then request and inverse are: nothing ties the
 * token to the request for it. `expires` is when its key does, in seconds since 1970.
 * @typedef {import("./token.js").PendingToken & {endpoint: string, token: Uint8Array<ArrayBuffer>, expires: number}} Kept
 */

/** @typedef {import("../ledgers/ledger.js").Sealed} Sealed */
/** @typedef {import("../ledgers/ledger.js").Entry} Entry */

export const isSigned = (/** @type {Kept} */ { token }) => token.length > 0;

/** @param {Entry} entry @param {Sealed} report */
export const findWaiting = ({ waiting }, report) => waiting.find(({ endpoint, body }) => endpoint === report.endpoint && areEqualBytes(body, report.body));

/** An entry with another token for a report that waits. @param {Entry} entry @param {Sealed} report @param {Uint8Array<ArrayBuffer> | null} token */
export function withToken(entry, report, token) {
  const waiting = findWaiting(entry, report);
  return { ...entry, waiting: entry.waiting.map((each) => (each === waiting ? { ...each, token } : each)) };
}

/** Tokens of the experiments in a ledger. Every change is one of the ledger's: at once and for good. */
export class TokenStore {
  /** @param {import("../ledgers/ledger.js").Ledger} ledger @param {import("../platform.js").Clock} clock */
  constructor(ledger, clock) {
    this.ledger = ledger;
    this.clock = clock;
  }

  /** Signed tokens that are left. @param {Entry} entry @param {string} endpoint */
  remaining(entry, endpoint) {
    return entry.tokens.filter((each) => each.endpoint === endpoint && isSigned(each) && each.expires > this.clock.now());
  }

  /**
   * The token that a waiting report comes with: the one of before, or one of those left; null: none is. Which one that is
   * tells nothing, since all are alike.
   * @param {string} identity @param {Sealed} report @returns {Promise<Uint8Array<ArrayBuffer> | null>}
   */
  async tie(identity, report) {
    const take = (/** @type {Entry} */ entry) => {
      const waiting = findWaiting(entry, report);
      const [spare] = this.remaining(entry, report.endpoint);
      if (!waiting || waiting.token || !spare) return /** @type {[Entry, Kept["token"] | null]} */ ([entry, waiting?.token ?? null]);
      const rest = { ...entry, tokens: entry.tokens.filter((each) => each !== spare) };
      return /** @type {[Entry, Kept["token"] | null]} */ ([withToken(rest, report, spare.token), spare.token]);
    };
    const entry = await this.ledger.entry(identity);
    const [changed, token] = take(entry);
    return changed === entry ? token : this.ledger.store.change(identity, take);
  }

  /** The header that a waiting report comes with; none without a token. @param {string} identity @param {Sealed} report */
  async authorize(identity, report) {
    const token = await this.tie(identity, report);
    return token && { authorization: formatAuthorization(token) };
  }

  /** Forget the token of a report if no endpoint takes it any more. @param {string} identity @param {Sealed} report
   * @param {string | null} reason that the endpoint gave */
  async untie(identity, report, reason) {
    if (WORN.has(reason ?? "")) await this.ledger.set(identity, (entry) => withToken(entry, report, null));
  }
}
