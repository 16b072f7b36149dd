// @ts-check
/** `join`, `choose`, `report`: a device's part in an experiment. */

import { PrivateerError, invalid, refused, unavailable } from "./errors.js";
import { ask, problem } from "./exchange.js";
import { blockOf, checkProof, checkSigned, entryOf, openHead } from "./log.js";
import { Participation } from "./participation.js";
import { LIMITS } from "./verification.js";

const MSGPACK = "application/msgpack";
const FRESH_MS = 3000;
const PROOF_MAX = 64 << 10;
const FINAL = new Set([
  "malformed-report", "wrong-size", "wrong-key", "wrong-digest", "wrong-endpoint", "unopenable", "out-of-range",
  "too-large", "terms-refused", "spec-invalid", "deleted",
]);
const AGAIN = new Set([408, 425, 429]);

/** @typedef {"accepted" | "late" | "not-asked" | "refused" | "pending"} Outcome */

export class Client {
  /**
   * @param {string} server address of the learning server
   * @param {object} how
   * @param {import("./ledger.js").MemoryLedger} how.ledger what this device has paid for
   * @param {string} [how.shuffler] address of the shuffler that the application trusts; no server can name one
   * @param {Partial<import("./verification.js").Limits>} [how.limits] what this device accepts
   * @param {number} [how.timeout] seconds for a request
   * @param {string[]} [how.serverKeys] the server's public key (64 hexadecimal digits), or several while it is replaced;
   *   by default the first one that the ledger meets
   */
  constructor(server, { ledger, shuffler, limits = {}, timeout = 10, serverKeys = [] }) {
    this.serverKeys = serverKeys;
    this.server = server.replace(/\/$/, "");
    this.shuffler = shuffler?.replace(/\/$/, "");
    this.ledger = ledger;
    this.limits = { ...LIMITS, ...limits };
    this.timeout = timeout;
  }

  /** Fetch the policy of an experiment, and check it. @param {string} name */
  async join(name) {
    const { participation } = await this.fetched(name, null);
    if (participation.isOpen) this.endpoint(participation);
    return new Session(this, name, participation);
  }

  /** Send again what nobody has answered for good. @returns {Promise<Outcome[]>} */
  async resend() {
    /** @type {Outcome[]} */
    const outcomes = [];
    for (const [identity, { endpoint, body }] of this.ledger.waiting()) {
      outcomes.push(await this.deliver(identity, endpoint, new Uint8Array(Buffer.from(body, "hex"))));
    }
    return outcomes;
  }

  /** @param {string} name */
  identity(name) {
    return `${this.server}/${name}`;
  }

  /**
   * The publication of the open round, checked; the known one if the server still publishes it.
   * @param {string} name @param {Participation | null} known
   */
  async fetched(name, known) {
    const tag = known && { "if-none-match": `"${Buffer.from(known.digest).toString("hex")}"` };
    const url = `${this.server}/experiments/${encodeURIComponent(name)}/policy`;
    const answer = await ask(url, { headers: { accept: MSGPACK, ...tag } }, this.timeout);
    if (answer.status === 304 && known) return { participation: known };
    if (answer.status === 404 || answer.status === 410) {
      throw new PrivateerError(problem(answer) ?? "not-found", "the server has no such experiment");
    }
    const isPublication = answer.headers.get("content-type")?.split(";")[0] === MSGPACK;
    if (answer.status !== 200 || !isPublication) throw unavailable("the server did not answer with a publication");
    // Whoever chose when the round asked may report in a pause that has begun since.
    const paused = known === null && answer.headers.get("privateer-asks") === "nobody";
    const seen = this.ledger.known(this.server);
    const keys = this.serverKeys.length || !seen ? this.serverKeys : [seen.key];
    const key = await checkSigned(answer.headers.get("privateer-signed") ?? "", answer.body, keys);
    const participation = await Participation.checked(answer.body, name, this.limits, paused);
    await this.witnessed(participation, key);
    return { participation };
  }

  /** The last signed head of the server's log, for comparing with other devices. */
  get head() {
    return this.ledger.known(this.server)?.head ?? null;
  }

  /** See that a publication is in the server's log, and keep the log's head. @param {Participation} followed @param {string} key */
  async witnessed({ round, digest }, key) {
    const seen = this.ledger.known(this.server);
    const entry = entryOf(round.experiment, round.version, digest);
    let last = seen && (await openHead(seen.head, seen.key));
    let proof = await this.proof(round, null);
    // An application that names a new key may name a new log with it; the same log must go on.
    if (seen && seen.key !== key && (await openHead(proof.head ?? "", key)).origin !== last?.origin) last = null;
    const block = blockOf(proof, last);
    if (block !== null) proof = await this.proof(round, block);
    const { signed } = await checkProof(proof, entry, key, last);
    this.ledger.know(this.server, { key, head: signed });
  }

  /** @param {import("./publication.js").Round} round @param {number | null} block @returns {Promise<any>} */
  async proof({ experiment, version }, block) {
    const asked = new URLSearchParams({ experiment, version: `${version}`, ...(block !== null && { block: `${block}` }) });
    const answer = await ask(`${this.server}/log/proof?${asked}`, {}, this.timeout, PROOF_MAX);
    if (answer.status !== 200) throw unavailable("the server did not prove what it published");
    try {
      return JSON.parse(new TextDecoder().decode(answer.body));
    } catch {
      throw new PrivateerError("proof-invalid", "the answer is not a proof", "proof");
    }
  }

  /** Where reports go. @param {Participation} participation */
  endpoint({ round }) {
    if (round.model !== "shuffle") return `${this.server}/reports`;
    if (!this.shuffler) throw refused("the experiment needs a shuffler, and the application names none", "shuffler");
    return `${this.shuffler}/experiments/${encodeURIComponent(round.experiment)}/reports`;
  }

  /** @param {string} identity @param {string} endpoint @param {Uint8Array<ArrayBuffer>} body @returns {Promise<Outcome>} */
  async deliver(identity, endpoint, body) {
    try {
      const headers = { "content-type": MSGPACK };
      const outcome = judged(await ask(endpoint, { method: "POST", headers, body }, this.timeout));
      if (outcome !== "pending") this.ledger.answered(identity);
      return outcome;
    } catch (error) {
      if (error instanceof PrivateerError && error.type === "unavailable") return "pending";
      throw error;
    }
  }
}

/** What an answer decides about a report. @param {import("./exchange.js").Answer} answer @returns {Outcome} */
export function judged(answer) {
  if (answer.status === 202) return "accepted";
  if (answer.status < 400 || answer.status >= 500 || AGAIN.has(answer.status)) return "pending";
  const reason = problem(answer);
  if (reason === "duplicate-report") return "accepted";
  if (reason === "round-closed") return "late";
  return reason !== null && FINAL.has(reason) ? "refused" : "pending";
}

/** One person's part in an experiment. */
export class Session {
  /** @param {Client} client @param {string} name @param {Participation} participation */
  constructor(client, name, participation) {
    this.client = client;
    this.name = name;
    this.participation = participation;
    this.fetchedAt = performance.now();
    /** @type {import("./participation.js").Choice | null} */
    this.choice = null;
  }

  /** Whether this person is asked for a report. */
  get asked() {
    const { participation, client } = this;
    return participation.asks && participation.spec.window === 0 && !client.ledger.has(client.identity(this.name));
  }

  /** Choose for this person; nothing is sent. @param {Record<string, any>} [context] a value for each feature */
  choose(context = {}) {
    this.choice = this.participation.choose(context);
    return this.participation.spec.arms[this.choice.arm];
  }

  /** Report what came of the choice, once. @param {number} reward @returns {Promise<Outcome>} */
  async report(reward) {
    const { client, choice } = this;
    if (!choice) throw invalid("choose an arm first", "reward");
    if (client.ledger.has(client.identity(this.name))) {
      throw new PrivateerError("already-reported", "this device has reported to the experiment");
    }
    if (!this.asked) return "not-asked";
    const opened = await this.opened();
    agree(choice, opened);
    if (!opened.takes(choice.version)) return "not-asked";
    const [endpoint, identity] = [client.endpoint(opened), client.identity(this.name)];
    const body = await opened.body(opened.message(choice, reward));
    client.ledger.pay(identity, endpoint, body);
    return client.deliver(identity, endpoint, body);
  }

  /** The publication whose round is open now. */
  async opened() {
    if (performance.now() - this.fetchedAt < FRESH_MS) return this.participation;
    const { participation } = await this.client.fetched(this.name, this.participation);
    return participation;
  }
}

/** Refuse a publication under which a choice means something else. @param {import("./participation.js").Choice} choice
 * @param {Participation} opened */
function agree(choice, opened) {
  const arms = JSON.parse(choice.meaning)[3].length;
  if (opened.spec.meaning(arms) !== choice.meaning) throw refused("the spec means something else now", "spec");
  const same = Buffer.compare(opened.digest, choice.digest) === 0;
  if (opened.round.version === choice.version && !same) {
    throw refused("the server has published another policy of this version", "version");
  }
}
