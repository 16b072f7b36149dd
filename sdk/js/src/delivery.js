// @ts-check
/** How sealed reports reach their endpoints: the same bytes until an answer decides. */

import { PrivateerError } from "./errors.js";
import { MSGPACK, ask, readSlug } from "./exchange.js";
import { drawBelow, pause } from "./platform.js";
import { TokenStore } from "./tokens/token-store.js";

const FINAL = new Set([
  "report-refused", "malformed-report", "wrong-size", "wrong-key", "wrong-digest", "wrong-endpoint", "decryption-failed",
  "out-of-range", "too-large", "terms-refused", "spec-invalid", "deleted",
]);
const AGAIN = [408, 425, 429];
const [FIRST, MOST] = [0.25, 30];

/**
 * `accepted`: it is durable. `late`: the round closed before the report came. `not-requested`: nothing was paid or sent.
 * `already-reported`: this person's reports are made, or this period's.
 * `refused`: the endpoint did not take it. `pending`: nobody has decided yet, and the ledger keeps it.
 * @typedef {"accepted" | "late" | "not-requested" | "already-reported" | "refused" | "pending"} ReportStatus
 */

/** @typedef {{outcome: ReportStatus, reason: string | null}} Verdict */

/** What an answer decides about a report. @param {import("./exchange.js").Answer} answer @returns {ReportStatus} */
export function judgeAnswer(answer) {
  if (answer.status === 202) return "accepted";
  if (answer.status < 400 || answer.status >= 500 || AGAIN.includes(answer.status)) return "pending";
  const reason = readSlug(answer);
  if (reason === "duplicate-report") return "accepted";
  if (reason === "round-closed") return "late";
  return reason !== null && FINAL.has(reason) ? "refused" : "pending";
}

/** Sends what a ledger keeps. */
export class Delivery {
  /** @param {import("./ledgers/ledger.js").Ledger} ledger @param {number} timeout @param {import("./platform.js").Clock} clock */
  constructor(ledger, timeout, clock) {
    this.ledger = ledger;
    this.tokenStore = new TokenStore(ledger, clock);
    this.timeout = timeout;
    this.clock = clock;
  }

  /** Send once. @param {string} identity @param {import("./ledgers/ledger.js").Sealed} sealed @returns {Promise<Verdict & {quiet: number}>} */
  async once(identity, sealed) {
    try {
      const headers = { "content-type": MSGPACK, ...(await this.tokenStore.authorize(identity, sealed)) };
      const answer = await ask(sealed.endpoint, { method: "POST", headers, body: sealed.body }, this.timeout);
      const outcome = judgeAnswer(answer);
      const reason = outcome === "accepted" ? null : readSlug(answer);
      // The next try comes with another one.
      await this.tokenStore.untie(identity, sealed, reason);
      // Bytes that could not be deleted are sent again, and are duplicates then.
      if (outcome !== "pending") await this.ledger.forgetReport(identity, sealed).catch(() => {});
      const quiet = Number(answer.headers.get("retry-after")) || 0;
      return { outcome, reason, quiet };
    } catch (error) {
      if (error instanceof PrivateerError && error.type === "unavailable") return { outcome: "pending", reason: null, quiet: 0 };
      throw error;
    }
  }

  /** Send until an answer decides, or retryTimeout ends. @param {string} identity @param {import("./ledgers/ledger.js").Sealed} sealed
   * @param {number} retryTimeout seconds @returns {Promise<Verdict>} */
  async until(identity, sealed, retryTimeout) {
    const end = this.clock.monotonic() + retryTimeout;
    for (let tries = 1; ; tries++) {
      const verdict = await this.once(identity, sealed);
      const secondsLeft = end - this.clock.monotonic();
      if (verdict.outcome !== "pending" || secondsLeft <= verdict.quiet) return verdict;
      const backoff = (drawBelow(1000) / 1000) * Math.min(MOST, FIRST * 2 ** (tries - 1));
      await pause(Math.min(secondsLeft, verdict.quiet + backoff));
    }
  }
}
