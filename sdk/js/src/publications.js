// @ts-check
/** The publications of one experiment, as a device gets them: from the server, or the one that it kept. */

import { PrivateerError, refused, unavailable } from "./errors.js";
import { hex } from "./bytes.js";
import { MSGPACK, ask, problem } from "./exchange.js";
import { Participation } from "./participation.js";

/** Seconds for which a publication counts as the open one. */
const FRESH = 3;

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
  async joined() {
    try {
      return await this.fetched(null);
    } catch (error) {
      if (!(error instanceof PrivateerError && error.type === "unavailable")) throw error;
      const kept = await this.kept();
      if (!kept) throw error;
      return kept;
    }
  }

  /** The last one that was checked, checked anew. @returns {Promise<Published | null>} */
  async kept() {
    const { publication } = await this.client.ledger.entry(this.identity);
    if (!publication) return null;
    return { participation: await Participation.checked(publication, this.name, this.client.limits), sent: null };
  }

  /** The one whose round is open now. @param {Published | null} known @returns {Promise<Published>} */
  async opened(known) {
    if (!known?.sent) return this.fetched(null, false);
    const { now, monotonic } = this.client.clock;
    const age = Math.max(Math.abs(now() - known.sent.now), monotonic() - known.sent.monotonic);
    return age < FRESH ? known : this.fetched(known.participation, false);
  }

  /** @param {Participation | null} known @param {boolean} choosing whether the person is to choose by it @returns {Promise<Published>} */
  async fetched(known, choosing = true) {
    const { client, name } = this;
    const tag = known && { "if-none-match": `"${hex(known.digest)}"` };
    const url = `${client.server}/experiments/${encodeURIComponent(name)}/policy`;
    const answer = await ask(url, { headers: { accept: MSGPACK, ...tag } }, client.timeout);
    const sent = { now: client.clock.now(), monotonic: client.clock.monotonic() };
    if (answer.status === 304 && known) return { participation: known, sent };
    if (answer.status === 404 || answer.status === 410) {
      throw new PrivateerError(problem(answer) ?? "not-found", "the server has no such experiment: check its spelling", "name");
    }
    const isPublication = answer.headers.get("content-type")?.split(";")[0] === MSGPACK;
    if (answer.status !== 200 || !isPublication) throw unavailable("the server did not answer with a publication");
    // Whoever chose when the round asked may report in a pause that has begun since.
    const paused = choosing && answer.headers.get("privateer-asks") === "nobody";
    const participation = await Participation.checked(answer.body, name, client.limits, paused);
    // What cannot be kept is fetched again.
    await client.ledger.remember(this.identity, answer.body).catch(() => {});
    return { participation, sent };
  }

  /** Where reports go. @param {Participation} participation */
  endpoint({ round, spec }) {
    const { server, shuffler } = this.client;
    if (spec.trust.endpoint === "server") return `${server}/reports`;
    if (!shuffler) throw refused("the experiment needs a shuffler, and the application names none", "shuffler");
    return `${shuffler}/experiments/${encodeURIComponent(round.experiment)}/reports`;
  }
}
