// @ts-check
/** What a device has paid for, keeps and still has to send. A store makes it last; what it says is the same everywhere. */

import { areEqualBytes } from "../bytes.js";
import { isSameChoice } from "../choice.js";
import { alreadyReported, refused, unwritable } from "../errors.js";
import { isRollback, outweighs } from "../log.js";
import { drawBelow } from "../platform.js";
import { Uses } from "./uses.js";
import { lock, unlock } from "./vault.js";

const TRIES = 100;

/**
 * What the reports to an experiment have cost: the first one pays for all that share the promise.
 * @typedef {{version: number, model: string, epsilon: number | null, delta: number, localEpsilon: number | null, day: number,
 *   reports: number, made: number, period: number, pinned: string}} Payment epsilons are null where there is no bound
 */

/** A report that was made for an endpoint, and the upload token that it comes with, if it has one.
 * @typedef {{endpoint: string, body: Uint8Array<ArrayBuffer>, token?: Uint8Array<ArrayBuffer> | null}} Sealed */

/** Which time of several was drawn for the report, and which it is now. @typedef {{times: number, seconds: number, drawn: number,
 *   come: number, period: number}} Turn */

/**
 * All that a ledger has of an experiment.
 * @typedef {object} Entry
 * @property {Payment | null} payment
 * @property {Sealed[]} waiting reports that nobody has answered for good
 * @property {Uint8Array<ArrayBuffer> | null} choice encrypted (`vault.js`)
 * @property {Uint8Array<ArrayBuffer> | null} shown the arm that the person saw last, and the coins of their next choice, encrypted
 * @property {Turn | null} turn
 * @property {Uint8Array<ArrayBuffer> | null} publication the last one that was checked; it is public
 * @property {import("../tokens/token-store.js").Kept[]} tokens upload tokens that no report comes with yet
 * @property {import("../log.js").Known | null} known of a server: its key, and the last head of its log
 * @property {string | null} evidence against a server, as JSON
 */

/**
 * Where entries are kept. `change` replaces one by what a function makes of it, at once and for good: no two of them, of
 * this page, another tab or another process, see the same entry before. It rejects, and changes nothing, if it cannot.
 * @typedef {object} Store
 * @property {(experiment: string) => Promise<Entry | null>} read
 * @property {<T>(experiment: string, change: (entry: Entry) => [Entry, T]) => Promise<T>} change
 * @property {() => Promise<string[]>} names
 * @property {string} [place] what other ledgers of this origin, or process, have the same entries by
 * @property {() => Promise<CryptoKey>} key what encrypts choices: the same each time, made when it is first needed
 */

/** @typedef {import("../participation.js").Choice} Choice */
/** @typedef {import("./arm.js").KeptArm} KeptArm */

/** @returns {Entry} */
export const makeEntry = () => ({ payment: null, waiting: [], choice: null, shown: null, turn: null, publication: null, tokens: [], known: null, evidence: null });

/** @param {Payment} payment @param {number} period */
export const allows = (payment, period) => payment.made < payment.reports && payment.period < period;

const changedTerms = () => refused("reports, period or promise of a person are not those of before", "experiment.reports_per_person");

/** @param {Uint8Array | null} now @param {Uint8Array | null} before */
const isUnchanged = (now, before) => now === before || (now !== null && before !== null && areEqualBytes(now, before));

/** A device's own account of its reports: paid before they are sent, no oftener than was promised. */
export class Ledger {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.uses = new Uses(store);
  }

  /** @param {string} experiment identity: server and name @returns {Promise<Entry>} */
  async entry(experiment) {
    return (await this.store.read(experiment)) ?? makeEntry();
  }

  /** Experiments that the ledger has anything of. @returns {Promise<string[]>} */
  names() {
    return this.store.names();
  }

  /**
   * Pay, keep the bytes that are paid for, and erase the choice behind them, but not its arm. Only then may they be sent.
   * @param {string} experiment @param {Omit<Payment, "made">} payment @param {Sealed} sealed
   * @param {Entry["choice"]} [about] the choice as it was read: nothing is paid if another one, or none, is kept by now
   * @returns {Promise<boolean>} whether it is paid
   */
  pay(experiment, payment, sealed, about) {
    return this.store.change(experiment, (entry) => {
      const asFirst = { ...payment, made: 1 };
      const total = entry.payment ? followPayment(entry.payment, asFirst) : asFirst;
      if (about && !isUnchanged(entry.choice, about)) return [entry, false];
      return [{ ...entry, payment: total, choice: null, waiting: [...entry.waiting, sealed] }, true];
    });
  }

  /** Replace parts of an entry. @param {string} experiment @param {(entry: Entry) => Partial<Entry>} change */
  set(experiment, change) {
    return this.store.change(experiment, (entry) => [{ ...entry, ...change(entry) }, undefined]);
  }

  /** Forget a report that was answered for good, but not its payment. @param {string} experiment @param {Sealed} sealed */
  forgetReport(experiment, sealed) {
    return this.set(experiment, ({ waiting }) => ({ waiting: waiting.filter(({ body }) => !areEqualBytes(body, sealed.body)) }));
  }

  /** The choice that is kept. @param {string} experiment @returns {Promise<Choice | null>} */
  async choice(experiment) {
    return this.unlockChoice((await this.entry(experiment)).choice, experiment);
  }

  /** @param {Entry["choice"]} stored @param {string} experiment @returns {Promise<Choice | null>} */
  async unlockChoice(stored, experiment) {
    return stored && unlock(await this.store.key(), stored, experiment);
  }

  /**
   * Replace the choice that is kept by what a function makes of it, and return that. None is kept once no report can be made of it.
   * The function may be called again, where another page has kept something meanwhile.
   * @param {string} experiment @param {(kept: Choice | null) => Choice | null} change @returns {Promise<Choice | null>}
   */
  keep(experiment, change) {
    const counts = (/** @type {Entry} */ { payment }, /** @type {Choice} */ { period }) => payment === null || allows(payment, period);
    return this.swap(experiment, "choice", experiment, change, counts);
  }

  /**
   * Replace the arm that is kept by what a function makes of it, and return that; one that cannot be read is none, since no report
   * depends on it. The function may be called again, where another page has kept one meanwhile.
   * @param {string} experiment @param {(kept: KeptArm | null) => KeptArm} change @returns {Promise<KeptArm>}
   */
  async changeArm(experiment, change) {
    return /** @type {KeptArm} */ (await this.swap(experiment, "shown", `${experiment}#arm`, change, () => true));
  }

  /**
   * Compare and set what is kept encrypted: what encrypts takes its time, and a transaction of a browser does not wait.
   * @template {object} T @param {string} experiment @param {"choice" | "shown"} part @param {string} label
   * @param {(kept: T | null) => T | null} change @param {(entry: Entry, made: T) => boolean} counts whether it is kept
   * @returns {Promise<T | null>}
   */
  async swap(experiment, part, label, change, counts) {
    for (let tries = 0; tries < TRIES; tries++) {
      const before = (await this.entry(experiment))[part];
      const stored = before && (await unlock(await this.store.key(), before, label).catch((error) => (part === "shown" ? null : Promise.reject(error))));
      const updated = change(stored);
      if (!updated && !before) return null;
      const body = updated && updated === stored ? before : updated && (await lock(await this.store.key(), updated, label));
      const isWritten = await this.store.change(experiment, (entry) => {
        if (!isUnchanged(entry[part], before)) return [entry, null];
        const remaining = updated && counts(entry, updated) ? updated : null;
        return [{ ...entry, [part]: remaining && body }, { left: remaining }];
      });
      if (isWritten) return isWritten.left;
    }
    throw unwritable("the ledger changes all the time");
  }

  /** Erase a choice, unless another one is kept by now: no report will be made of it. The arm stays the person's.
   * @param {string} experiment @param {Choice} choice */
  async eraseChoice(experiment, choice) {
    await this.keep(experiment, (stored) => (stored && isSameChoice(stored, choice) ? null : stored));
  }

  /** Erase the choice and the arm, whether they can be read or not: no report will be made. @param {string} experiment */
  forget(experiment) {
    return this.set(experiment, () => ({ choice: null, shown: null }));
  }

  /** Keep a publication in the place of the one before. @param {string} experiment @param {Uint8Array<ArrayBuffer>} publication */
  remember(experiment, publication) {
    return this.set(experiment, () => ({ publication }));
  }

  /** What is known of a server. @param {string} server @returns {Promise<import("../log.js").Known | null>} */
  async readKnownServer(server) {
    return (await this.entry(`${server}#log`)).known;
  }

  /**
   * Keep what is known of a server, unless something else than before has come to be known meanwhile.
   * @param {string} server @param {import("../log.js").Known} readKnownServer @param {import("../log.js").Known | null} before
   * @returns {Promise<boolean>} whether it is kept
   */
  know(server, readKnownServer, before) {
    return this.store.change(`${server}#log`, (entry) => {
      const is = (/** @type {import("../log.js").Known | null} */ knownServer) => entry.known?.key === knownServer?.key && entry.known?.head === knownServer?.head;
      return is(readKnownServer) ? [entry, true] : is(before) ? [{ ...entry, known: readKnownServer }, true] : [entry, false];
    });
  }

  /** Evidence against a server. @param {string} server @returns {Promise<string | null>} */
  async evidence(server) {
    return (await this.entry(`${server}#log`)).evidence;
  }

  /** Keep evidence against a server, unless there is as strong evidence already. @param {string} server @param {string} evidence */
  storeEvidence(server, evidence) {
    return this.set(`${server}#log`, (entry) => (outweighs(evidence, entry.evidence) ? { evidence } : {}));
  }

  /** Mark the evidence that a server's log went back as answered, if that is all there is; it stays to be published. @param {string} server */
  markRollbackAnswered(server) {
    return this.set(`${server}#log`, ({ evidence }) =>
      evidence !== null && isRollback(evidence) ? { evidence: JSON.stringify({ ...JSON.parse(evidence), answered: true }, null, 1) } : {},
    );
  }

  /**
   * Trust whatever key and log a server has the next time, as at the first time.
   * @param {string} server @returns {Promise<string | null>} the evidence against it, which the ledger then has no more
   */
  forgetServer(server) {
    return this.store.change(`${server}#log`, ({ evidence }) => [makeEntry(), evidence]);
  }

  /**
   * Whether this time, of so many that the person comes, is the one that was drawn for the report. It is drawn when they
   * first come, and sent to nobody.
   * @param {string} experiment @param {number} times @param {number} seconds @param {number} period
   */
  draw(experiment, times, seconds, period) {
    const drawnTurn = drawBelow(times);
    return this.store.change(experiment, (entry) => {
      const before = entry.turn ?? { times, seconds, drawn: drawnTurn, come: 0, period };
      if (before.times !== times || before.seconds !== seconds) throw changedTerms();
      const turn = period > before.period ? { ...before, come: before.come + 1, period } : before;
      return [{ ...entry, turn }, turn.come === turn.drawn];
    });
  }
}

/** The payment that another report makes of the one before: the promise is paid for as a whole.
 * @param {Payment} before @param {Payment} payment @returns {Payment} */
function followPayment(before, payment) {
  if (before.made >= before.reports) throw alreadyReported();
  if (payment.pinned !== before.pinned) throw changedTerms();
  if (!allows(before, payment.period)) throw alreadyReported("this device has reported in this period: come back in the next one");
  if (payment.version <= before.version) throw alreadyReported("this device has reported to this round");
  return { ...payment, made: before.made + 1 };
}
