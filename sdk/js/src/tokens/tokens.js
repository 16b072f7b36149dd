// @ts-check
/** How a device gets upload tokens: ahead, apart from reports, with keys that are everybody's. */

import { concatBytes, areEqualBytes } from "../bytes.js";
import { PrivateerError, refused } from "../errors.js";
import { ask, readSlug } from "../exchange.js";
import { sha256 } from "../sealing.js";
import { Issuance } from "./issuance.js";
import { DIRECTORY, isValid, readDirectory } from "./keys.js";
import { SIGNATURE_SIZE, encodeChallenge, drawToken, finishToken, keyIdOf, tokenMark, serverName } from "./token.js";

const REQUEST = "application/private-token-request";
const RESPONSE = "application/private-token-response";
const ATTESTATION = "privateer-attestation";
const DIRECTORY_MAX = 64 << 10;
/** Keys of one experiment that are valid at a time; more would tell devices apart. */
const VALID_MAX = 2;
/** @type {Record<string, string>} */
const REMEDIES = {
  "attestation-refused": "have the application's backend sign anew",
  "tokens-exhausted": "it has had its share",
};

/** @typedef {import("./keys.js").TokenKey} TokenKey */
/** @typedef {import("./token.js").PendingToken} PendingToken */
/** @typedef {import("../ledgers/ledger.js").Sealed} Sealed */

const makeUntrustedError = (/** @type {string} */ detail) => refused(`${detail}: such keys would tell devices apart, do not report there`, "issuer");
const UNLISTED = "the server lists no token keys: have its operator set PRIVATEER_TOKEN_KEYS";
const LAGS = "the endpoint does not show the newest token key that the server lists: try again in minutes; if it lasts, do not report there";
const makeUnavailableError = (/** @type {string} */ detail) => new PrivateerError("unavailable", `${detail}: try again later`, "issuer");

/** Gets tokens for one experiment. */
export class Tokens {
  /** @param {import("../client.js").Client} client @param {import("../issuer.js").Issuer} issuer @param {string} name of the experiment */
  constructor(client, issuer, name) {
    this.client = client;
    this.name = name;
    this.identity = client.identity(name);
    this.issuer = issuer.url;
    this.attest = issuer.attest;
    this.tokenStore = new Issuance(client.ledger, client.clock);
  }

  /** The service that takes the reports of an endpoint. @param {string} endpoint */
  baseOf(endpoint) {
    const { server, shuffler } = this.client;
    return endpoint === `${server}/reports` ? server : /** @type {string} */ (shuffler);
  }

  /**
   * Get tokens until so many are left for an endpoint; ask nobody if they are there already.
   * @param {string} endpoint @param {number} count @param {number} seconds for each request
   */
  async fill(endpoint, count, seconds) {
    const missing = count - (await this.tokenStore.count(this.identity, endpoint));
    if (missing <= 0) return;
    const { good } = await this.keys(this.baseOf(endpoint), seconds);
    await this.get(endpoint, missing, count, good, seconds);
  }

  /**
   * Get another token for a report whose token is refused, if it names none of the keys that the endpoint shows. The report
   * keeps its token until another one is there, since an issuer may find its keys again. Its bytes stay as they are, and hold
   * its id, so that it counts once whichever token they come with.
   * @param {Sealed} report @param {number} seconds for each request
   */
  async replace(report, seconds) {
    const { identity, tokenStore } = this;
    const { endpoint } = report;
    const token = await tokenStore.tied(identity, report);
    if (!token) return;
    const { good, shown: listedKeys } = await this.keys(this.baseOf(endpoint), seconds);
    const digest = await this.digest(endpoint);
    const marks = listedKeys.map(({ id }) => concatBytes(digest, id));
    if (marks.some((mark) => areEqualBytes(mark, tokenMark(token)))) return;
    const strays = await tokenStore.strays(identity, endpoint, marks);
    const count = 1 + (await tokenStore.bare(identity, endpoint)) + strays.length;
    const missing = count - (await tokenStore.count(identity, endpoint));
    if (missing > 0) await this.get(endpoint, missing, count, good, seconds);
    await tokenStore.part(identity, report, token, strays);
  }

  /** Digest of the challenge that tokens for an endpoint are for. @param {string} endpoint */
  async digest(endpoint) {
    return sha256(await encodeChallenge(serverName(this.issuer), serverName(this.baseOf(endpoint)), this.name));
  }

  /**
   * Get missing tokens; first those that were asked for before.
   * @param {string} endpoint @param {number} missing @param {number} count as many as the ledger may have then
   * @param {TokenKey[]} keys @param {number} seconds for each request
   */
  async get(endpoint, missing, count, keys, seconds) {
    const { identity, tokenStore } = this;
    const digest = await this.digest(endpoint);
    await tokenStore.keepOnly(identity, endpoint, digest);
    const reusable = await this.stillValid(await tokenStore.pending(identity, endpoint), keys);
    const fresh = await Promise.all(Array.from({ length: Math.max(0, missing - reusable.length) }, () => drawToken(digest, keys[0])));
    const pending = await tokenStore.begin(identity, endpoint, fresh, keys[0].notAfter, count);
    for (const token of pending.slice(0, missing)) await this.sign(token, keys, seconds);
  }

  /** The tokens that were asked for before and may still be signed; forget the others. @param {PendingToken[]} pending @param {TokenKey[]} keys */
  async stillValid(pending, keys) {
    const isKnown = (/** @type {PendingToken} */ token) => keys.some(({ id }) => areEqualBytes(id, keyIdOf(token)));
    for (const token of pending) if (!isKnown(token)) await this.tokenStore.drop(this.identity, token);
    return pending.filter(isKnown);
  }

  /**
   * The keys for tokens, the newest first: the newest that the server lists, which the endpoint must show, too. Neither
   * request says who asks. If the endpoint, or the issuer behind it, could choose among keys, the choice would tell devices
   * from each other when they spend their tokens.
   * @param {string} base @param {number} seconds @returns {Promise<{good: TokenKey[], shown: TokenKey[]}>} and all that the
   * endpoint shows
   */
  async keys(base, seconds) {
    const listedKeys = await this.listedKeys(base, seconds);
    if (!listedKeys) throw makeUnavailableError("the endpoint shows no token keys");
    const listed = base === this.client.server ? listedKeys : await this.listedKeys(this.client.server, seconds);
    if (!listed) throw refused(UNLISTED, "issuer");
    const good = listed.filter(({ id }) => listedKeys.some((token) => areEqualBytes(token.id, id)));
    if (good[0] !== listed[0]) throw refused(LAGS, "issuer");
    return { good, shown: listedKeys };
  }

  /** @param {string} base @param {number} seconds @returns {Promise<TokenKey[] | null>} */
  async listedKeys(base, seconds) {
    const url = `${base}/experiments/${encodeURIComponent(this.name)}/token-keys`;
    const answer = await ask(url, { headers: { accept: DIRECTORY } }, seconds, DIRECTORY_MAX);
    if (answer.status === 404) return null;
    if (answer.status !== 200) throw makeUnavailableError("no answer about token keys");
    const { issuer, keys } = await readDirectory(answer.body, this.name).catch(() => {
      throw makeUntrustedError("no token keys of type 2");
    });
    const valid = keys.filter((key) => isValid(key, this.client.clock.now()));
    if (issuer !== serverName(this.issuer)) throw makeUntrustedError("the token keys are another issuer's than the application names");
    if (valid.length > VALID_MAX) throw makeUntrustedError(`more than ${VALID_MAX} token keys are valid at a time`);
    return valid.length ? valid : null;
  }

  /** Have a token signed, and keep it. @param {PendingToken} pending @param {TokenKey[]} keys @param {number} seconds */
  async sign(pending, keys, seconds) {
    const key = keys.find(({ id }) => areEqualBytes(id, keyIdOf(pending)));
    if (!key) return; // another page has drawn it by keys of its own, and has it signed
    const url = `${this.issuer}/experiments/${encodeURIComponent(this.name)}/tokens`;
    const headers = { "content-type": REQUEST, accept: RESPONSE, ...(await this.attestation(seconds)) };
    const answer = await ask(url, { method: "POST", headers, body: pending.request }, seconds, SIGNATURE_SIZE);
    if (answer.status !== 200) throw await this.unsigned(readSlug(answer) ?? "", pending);
    const token = await finishToken(pending, key, answer.body).catch(() => {
      throw makeUntrustedError("the issuer signs with another key than everybody's");
    });
    await this.tokenStore.finish(this.identity, pending, token);
  }

  /** What tells the issuer of this device. @param {number} seconds @returns {Promise<Record<string, string>>} */
  async attestation(seconds) {
    const { attest } = this;
    if (!attest) return {};
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    try {
      const late = new Promise((_, reject) => (timer = setTimeout(reject, 1000 * seconds)));
      return { [ATTESTATION]: String(await Promise.race([attest(this.name), late])) };
    } catch {
      throw new PrivateerError("unavailable", "the application's backend signed nothing for this device", "attest");
    } finally {
      clearTimeout(timer);
    }
  }

  /** Why the issuer gives no token. @param {string} reason @param {PendingToken} pending */
  async unsigned(reason, pending) {
    if (reason === "token-request-refused") await this.tokenStore.drop(this.identity, pending);
    if (!Object.hasOwn(REMEDIES, reason)) return makeUnavailableError("the issuer has signed no token");
    return new PrivateerError(reason, `the issuer gives this device no token: ${REMEDIES[reason]}`, "issuer");
  }
}
