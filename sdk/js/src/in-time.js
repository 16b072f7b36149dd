// @ts-check
/** Sessions and arms that are there in time: a server that takes its time holds no page, and its answer serves the next one. */

import { PrivateerError, invalid, unavailable } from "./errors.js";
import { describeDelay, ledgerTimeoutMessage } from "./exchange.js";

/** @typedef {import("./session.js").Session} Session */

/** Seconds for which a page waits. */
export const WITHIN = 0.3;
/** Seconds after which an experiment is joined anew. */
const LASTS = 60;
/** Seconds after which a reason is told again: a process may have a client for each of its people. */
const AGAIN = 3600;
/** When a reason was told last, by what tells it. @type {WeakMap<(message: string) => void, Map<string, number>>} */
const toldMessages = new WeakMap();

/** Refuse a call that leaves out the context, so that options stand in its place. @param {{default: any}} options */
export function requireDefault(options) {
  if (!options) throw invalid("give { default } after the context, {} without features", "options");
}

/**
 * The arm that a page shows: the person's, or the default; `fallback` says why it is the default, and is null if it is not.
 * `report` does what `Session.report` does; nothing is reported on a default, which is `not-requested`.
 * @typedef {object} Arm
 * @property {any} name
 * @property {string | null} fallback
 * @property {Session | null} session
 * @property {(reward: any) => Promise<import("./delivery.js").ReportStatus>} report
 */

/**
 * An experiment that is being joined. `isRead`: whether the ledger has answered; a request that is open may be another person's.
 * @typedef {{began: number, kept: Promise<Session | null>, isRead: boolean, joined: Promise<Session>, state: "going" | "here" | "failed"}} Going
 */

/** Joins each experiment beside, once at a time; until a session is there, what the device keeps has to do. */
export class InTime {
  /** @param {import("./client.js").Client} client */
  constructor(client) {
    this.client = client;
    /** @type {Map<string, Going>} */
    this.going = new Map();
  }

  /** A session, by what the device keeps if the server takes longer. @param {string} name @param {number} within seconds @returns {Promise<Session>} */
  async session(name, within) {
    const { client } = this;
    const now = performance.now() / 1000;
    let going = this.going.get(name);
    if (!going || going.state === "failed" || (going.state === "here" && now - going.began > LASTS)) going = this.start(name, now);
    const session = await awaitUntil(going.joined, going.began + within - now);
    const stored = session ?? (await awaitUntil(going.kept, 0));
    if (stored) return stored;
    throw unavailable(going.isRead ? describeDelay([client.server, client.shuffler], within) : ledgerTimeoutMessage(within));
  }

  /** @param {string} name @param {number} now */
  start(name, now) {
    const stored = this.client.offline(name).catch(() => null);
    const joined = this.client.join(name);
    /** @type {Going} */
    const going = { began: now, kept: stored, isRead: false, joined, state: "going" };
    stored.then(() => (going.isRead = true));
    joined.then(() => (going.state = "here"), () => (going.state = "failed"));
    this.going.set(name, going);
    return going;
  }

  /** @param {string} name @param {Record<string, any>} context @param {{default: any, within?: number, sticky?: boolean}} options @returns {Promise<Arm>} */
  async arm(name, context, options) {
    requireDefault(options);
    const { default: standard, within = WITHIN, sticky } = options;
    try {
      const session = await this.session(name, within);
      return { name: session.choose(context, { sticky }), fallback: null, session, report: (reward) => session.report(reward) };
    } catch (error) {
      return this.showDefault(name, standard, error);
    }
  }

  /** @param {string} name @param {any} standard @param {unknown} error why it is shown @returns {Arm} */
  showDefault(name, standard, error) {
    // Other errors than ours may quote what a person has.
    const reason = error instanceof PrivateerError ? error.message : /** @type {Error} */ (error).name;
    warnSometimes(this.client.tell, `${name}: the default is shown: ${reason}`);
    return { name: standard, fallback: reason, session: null, report: async () => "not-requested" };
  }
}

/** Tell a message once an hour. @param {(message: string) => void} warn @param {string} message */
export function warnSometimes(warn, message) {
  const times = toldMessages.get(warn) ?? new Map();
  const now = performance.now() / 1000;
  if (now - (times.get(message) ?? -AGAIN) < AGAIN) return;
  toldMessages.set(warn, times.set(message, now));
  warn(message);
}

/** What a promise gives; null if it has given nothing after so many seconds. @template T @param {Promise<T>} promise @param {number} seconds
 * @returns {Promise<T | null>} */
export async function awaitUntil(promise, seconds) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const end = new Promise((resolve) => (timer = setTimeout(() => resolve(null), Math.max(0, 1000 * seconds))));
  try {
    return /** @type {T | null} */ (await Promise.race([promise, end]));
  } finally {
    clearTimeout(timer);
  }
}
