// @ts-check
/** The publications of one experiment, as a device gets them: from the server, or the one that it kept. */

import { PrivateerError, refused, unavailable } from "./errors.js";
import { hex, json } from "./bytes.js";
import { MSGPACK, ask, nonsense, readSlug } from "./exchange.js";
import { continuationBlock, checkProof, verifySigner, checkStart, findContradiction, encodeEntry, isRollback, makeKeyChangedError, openHead } from "./log.js";
import { Participation } from "./participation.js";

/** Seconds for which a publication counts as the open one. */
const FRESH = 3;
const PROOF_MAX = 64 << 10;
/** Proofs that are fetched, where other pages of this device fetch some at the same time. */
const TRIES = 5;
/** What is wrong with a proof of a server that cannot be trusted. */
const UNTRUSTED = new Set(["signature-invalid", "key-changed", "proof-invalid", "log-rollback", "log-forked"]);

/** A publication that was checked, and when the server sent it; null: the device had kept it.
 * @typedef {{participation: Participation, sent: {now: number, monotonic: number} | null}} Published */

export class Publications {
  /** @param {import("./client.js").Client} client @param {string} name of the experiment */
  constructor(client, name) {
    this.client = client;
    this.name = name;
    this.identity = client.identity(name);
  }

  /** By what this person decides: the server's publication, or the one kept if the server does not answer. @returns {Promise<Published>} */
  async session() {
    try {
      return await this.fetched(null);
    } catch (error) {
      if (!(error instanceof PrivateerError && error.type === "unavailable")) throw error;
      const stored = await this.stored();
      if (!stored) throw error;
      return stored;
    }
  }

  /**
   * Refuse a server that the device holds evidence against; after a rollback, ask first whether the log continues the last
   * known head. An old head may be one that somebody in between repeats: a server that still has what it had can prove it.
   */
  async reconciled() {
    const { client } = this;
    if (isRollback(await client.evidence())) {
      try {
        await this.fetched(null);
        await client.ledger.markRollbackAnswered(client.server);
      } catch (error) {
        if (!(error instanceof PrivateerError)) throw error;
      }
    }
    await client.checkServer();
  }

  /** The last one that was checked, checked anew. @returns {Promise<Published | null>} */
  async stored() {
    const { publication } = await this.client.ledger.entry(this.identity);
    if (!publication) return null;
    return { participation: await Participation.checked(publication, this.name, this.client.limits), sent: null };
  }

  /** The one whose round is open now. @param {Published | null} cached @returns {Promise<Published>} */
  async openPublication(cached) {
    // Nothing but an unsigned header said that nobody is asked: it is checked as one that asks.
    if (!cached?.sent || cached.participation.isPaused) return this.fetched(null, false);
    const { now, monotonic } = this.client.clock;
    const age = Math.max(Math.abs(now() - cached.sent.now), monotonic() - cached.sent.monotonic);
    return age < FRESH ? cached : this.fetched(cached.participation, false);
  }

  /** @param {Participation | null} cached @param {boolean} choosing whether the person is to choose by it @returns {Promise<Published>} */
  async fetched(cached, choosing = true) {
    const { client, name } = this;
    const tag = cached && { "if-none-match": `"${hex(cached.digest)}"` };
    const url = `${client.server}/experiments/${encodeURIComponent(name)}/policy`;
    const answer = await ask(url, { headers: { accept: MSGPACK, ...tag } }, client.timeout);
    const sentAt = { now: client.clock.now(), monotonic: client.clock.monotonic() };
    if (answer.status === 304 && cached) return { participation: cached, sent: sentAt };
    if (answer.status === 404 || answer.status === 410) {
      throw new PrivateerError(readSlug(answer) ?? "not-found", "the server has no such experiment: check its spelling", "name");
    }
    const isPublication = answer.headers.get("content-type")?.split(";")[0] === MSGPACK;
    if (answer.status !== 200 || !isPublication) throw unavailable(nonsense(url));
    // Whoever chose when the round asked may report in a pause that has begun since.
    const paused = choosing && answer.headers.get("privateer-asks") === "nobody";
    const seen = await client.ledger.readKnownServer(client.server);
    const keys = client.serverKeys.length || !seen ? client.serverKeys : [seen.key];
    const key = await verifySigner(answer.headers.get("privateer-signed") ?? "", answer.body, keys);
    const participation = await Participation.checked(answer.body, name, client.limits, paused);
    await this.witnessed(participation, key, answer.headers.get("privateer-signed") ?? "");
    // What cannot be kept is fetched again.
    await client.ledger.remember(this.identity, answer.body).catch(() => {});
    return { participation, sent: sentAt };
  }

  /** See that a publication is in the server's log, and keep the log's head. @param {Participation} followed @param {string} key
   * @param {string} signed */
  async witnessed(followed, key, signed) {
    // Another page may keep a head meanwhile: then the log must go on from that one.
    for (let tries = 0; tries < TRIES; tries++) if (await this.proved(followed, key, signed)) return;
    throw unavailable("the server's log changes all the time");
  }

  /** Check a proof, and keep its head; false if another page has kept one meanwhile. @param {Participation} followed @param {string} key
   * @param {string} header that signs the publication */
  async proved({ round, digest }, key, header) {
    const { client } = this;
    const { ledger, server, serverKeys } = client;
    const seen = await ledger.readKnownServer(server);
    if (seen && seen.key !== key && !serverKeys.length) throw makeKeyChangedError();
    const entry = encodeEntry(round.experiment, round.version, digest);
    let last = seen && (await openHead(seen.head, seen.key));
    let proof = await this.proof(round, null);
    // An application that names a new key may name a new log with it; the same log must go on.
    if (seen && seen.key !== key && (await openHead(`${proof?.head}`, key)).origin !== last?.origin) {
      if (isRollback(await client.evidence())) throw makeKeyChangedError(); // another log does not answer for one that went back
      last = null;
    }
    try {
      await checkStart(proof, key, last);
      const block = continuationBlock(proof, last);
      if (block !== null) proof = await this.proof(round, block);
      const { signed } = await checkProof(proof, entry, key, last);
      return ledger.know(server, { key, head: signed }, seen);
    } catch (error) {
      if (!(error instanceof PrivateerError) || !UNTRUSTED.has(error.type)) throw error;
      const publication = { experiment: round.experiment, version: round.version, digest: hex(digest) };
      const evidence = JSON.stringify({ problem: error.type, server, publication, signed: header, known: seen, proof: JSON.stringify(proof) }, null, 1);
      if (findContradiction(evidence)) client.contradiction = evidence;
      await ledger.storeEvidence(server, evidence).catch(() => {}); // the refusal matters more
      throw error;
    }
  }

  /** @param {import("./publication.js").Round} round @param {number | null} block @returns {Promise<any>} */
  async proof({ experiment, version }, block) {
    const { server, timeout } = this.client;
    const query = new URLSearchParams({ experiment, version: `${version}`, ...(block !== null && { block: `${block}` }) });
    const answer = await ask(`${server}/log/proof?${query}`, {}, timeout, PROOF_MAX);
    if (answer.status !== 200) throw unavailable("the server did not prove what it published");
    try {
      return json(answer.body);
    } catch {
      throw new PrivateerError("proof-invalid", "the answer is not a proof", "proof");
    }
  }

  /** Where reports go. @param {Participation} participation */
  endpoint({ round, spec }) {
    const { server, shuffler } = this.client;
    if (spec.trust.endpoint === "server") return `${server}/reports`;
    if (!shuffler) throw refused("the experiment needs a shuffler, and the application names none", "shuffler");
    return `${shuffler}/experiments/${encodeURIComponent(round.experiment)}/reports`;
  }
}
