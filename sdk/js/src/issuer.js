// @ts-check
/** The issuer of upload tokens: a module of its own, since most pages need none. */

import { parseName } from "./client.js";
import { PrivateerError } from "./errors.js";
import { normalizeUrl } from "./exchange.js";
import { warnSometimes } from "./in-time.js";
import { Tokens } from "./tokens/tokens.js";

/** What the application's backend signed for this device and an experiment. @typedef {(experiment: string) => string | Promise<string>} Attest */

/** A report that was sent, of an experiment, and the reason why an endpoint did not take it.
 * @typedef {[string, import("./ledgers/ledger.js").Sealed, string | null]} Sent */

/** What endpoints say of tokens that they do not know. The keys that they show tell whether they ever will. */
const DOUBTED = new Set(["token-invalid", "token-wrong-audience"]);

/** Warns of what keeps tokens away: the person gets an arm all the same. @param {import("./client.js").Client} client
 * @returns {(error: unknown) => void} */
const warnOf = (client) => (error) => {
  if (!(error instanceof PrivateerError)) throw error;
  warnSometimes(client.tell, `no upload token: ${error.message}`);
};

/** An issuer that the application trusts. */
export class Issuer {
  /** @param {string} url its address @param {{attest?: Attest}} [how] attest: gives what the backend signed, if the issuer asks for it */
  constructor(url, { attest } = {}) {
    this.url = normalizeUrl(url, "issuer");
    this.attest = attest;
  }

  /** @param {import("./client.js").Client} client @param {string} name of the experiment */
  tokens(client, name) {
    return new Tokens(client, this, name);
  }

  /** Get the tokens for an experiment ahead. @param {import("./publications.js").Publications} publications
   * @returns {Promise<number>} how many are left for reports */
  async fetch(publications) {
    const { client, identity, name } = publications;
    await client.checkServer();
    const published = await publications.session();
    await this.fill(publications, published, Infinity);
    return this.tokens(client, name).tokenStore.count(identity, publications.endpoint(published.participation));
  }

  /** Get a token for each report that a device may still make to an experiment. @param {import("./publications.js").Publications} publications
   * @param {import("./publications.js").Published} published @param {number} end of the monotonic clock */
  async fill(publications, { participation }, end) {
    const { client, identity, name } = publications;
    const { payment } = await client.ledger.entry(identity);
    const nRemaining = participation.spec.reports - (payment?.made ?? 0);
    const seconds = Math.min(client.timeout, end - client.clock.monotonic());
    if (!participation.round.batchSize || nRemaining <= 0 || seconds <= 0) return;
    await this.tokens(client, name).fill(publications.endpoint(participation), nRemaining, seconds);
  }

  /** Get the same before a session, which goes on without. @param {import("./publications.js").Publications} publications
   * @param {import("./publications.js").Published} published @param {number} end of the monotonic clock */
  fillAhead(publications, published, end) {
    return this.fill(publications, published, end).catch(warnOf(publications.client));
  }

  /**
   * Get tokens for the reports that wait without: the next `flush` sends them, apart from this request. Those whose tokens
   * the endpoint does not know get others if it never will.
   * @param {import("./client.js").Client} client @param {Sent[]} reports
   */
  replenish(client, reports) {
    return this.fillWaiting(client, reports).catch(warnOf(client));
  }

  /** @param {import("./client.js").Client} client @param {Sent[]} reports */
  async fillWaiting(client, reports) {
    for (const [identity, { endpoint }] of await client.waiting()) {
      const tokens = this.tokens(client, parseName(identity));
      await tokens.fill(endpoint, await tokens.tokenStore.bare(identity, endpoint), client.timeout);
    }
    for (const [identity, sealed, reason] of reports) {
      if (DOUBTED.has(reason ?? "")) await this.tokens(client, parseName(identity)).replace(sealed, client.timeout);
    }
  }
}
