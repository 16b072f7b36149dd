// @ts-check
/** Sessions and arms that are there in time: a server that takes its time holds no page, and its answer serves the next one. */

import { PrivateerError, unavailable } from "./errors.js";
import { late } from "./exchange.js";

/** @typedef {import("./session.js").Session} Session */

/** Seconds for which a page waits. */
export const WITHIN = 0.3;
/** Seconds after which an experiment is joined anew. */
const LASTS = 60;

/**
 * The arm that a page shows: the person's, or the default; `fallback` says why it is the default, and is null if it is not.
 * `report` does what `Session.report` does; nothing is reported on a default, which is `not-asked`.
 * @typedef {object} Arm
 * @property {any} name
 * @property {string | null} fallback
 * @property {Session | null} session
 * @property {(reward: any) => Promise<import("./delivery.js").Outcome>} report
 */

/** Joins each experiment beside, once at a time; until a session is there, what the device keeps has to do. */
export class InTime {
  /** @param {import("./client.js").Client} client */
  constructor(client) {
    this.client = client;
    /** @type {Map<string, {began: number, kept: Promise<Session | null>, joined: Promise<Session>, state: "going" | "here" | "failed"}>} */
    this.going = new Map();
    /** Reasons that the developer knows. @type {Set<string>} */
    this.told = new Set();
  }

  /** A session, by what the device keeps if the server takes longer. @param {string} name @param {number} within seconds @returns {Promise<Session>} */
  async session(name, within) {
    const { client } = this;
    const now = performance.now() / 1000;
    let going = this.going.get(name);
    if (!going || going.state === "failed" || (going.state === "here" && now - going.began > LASTS)) going = this.begun(name, now);
    const found = await until(going.joined, going.began + within - now);
    const kept = found ?? (await until(going.kept, 0));
    if (kept) return kept;
    throw unavailable(late(client.server, within));
  }

  /** @param {string} name @param {number} now */
  begun(name, now) {
    const kept = this.client.offline(name).catch(() => null);
    const joined = this.client.join(name);
    const going = { began: now, kept, joined, state: /** @type {"going" | "here" | "failed"} */ ("going") };
    joined.then(() => (going.state = "here"), () => (going.state = "failed"));
    this.going.set(name, going);
    return going;
  }

  /** @param {string} name @param {Record<string, any>} context @param {{default: any, within?: number, sticky?: boolean}} how @returns {Promise<Arm>} */
  async arm(name, context, { default: standard, within = WITHIN, sticky }) {
    try {
      const session = await this.session(name, within);
      return { name: session.choose(context, { sticky }), fallback: null, session, report: (reward) => session.report(reward) };
    } catch (error) {
      // Other errors than ours may quote what a person has.
      const why = error instanceof PrivateerError ? error.message : /** @type {Error} */ (error).name;
      if (!this.told.has(`${name} ${why}`)) this.client.tell(`${name}: the default is shown: ${why}`);
      this.told.add(`${name} ${why}`);
      return { name: standard, fallback: why, session: null, report: async () => "not-asked" };
    }
  }
}

/** What a promise gives; null if it has given nothing after so many seconds. @template T @param {Promise<T>} promise @param {number} seconds
 * @returns {Promise<T | null>} */
async function until(promise, seconds) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const end = new Promise((resolve) => (timer = setTimeout(() => resolve(null), Math.max(0, 1000 * seconds))));
  try {
    return /** @type {T | null} */ (await Promise.race([promise, end]));
  } finally {
    clearTimeout(timer);
  }
}
