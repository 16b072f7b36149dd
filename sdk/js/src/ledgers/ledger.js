// @ts-check
/** What a device has paid for, keeps and still has to send. A store makes it last; what it says is the same everywhere. */

import { alreadyReported, refused } from "../errors.js";
import { below } from "../platform.js";

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
 * @property {import("../participation.js").Choice | null} choice
 * @property {Turn | null} turn
 * @property {Uint8Array<ArrayBuffer> | null} publication the last one that was checked; it is public
 * @property {import("../tokens/purse.js").Kept[]} [tokens] upload tokens that no report comes with yet
 * @property {import("../log.js").Known | null} [known] of a server: its key, and the last head of its log
 */

/**
 * Where entries are kept. `change` replaces one by what a function makes of it, at once and for good: no two of them, of
 * this page, another tab or another process, see the same entry before. It rejects, and changes nothing, if it cannot.
 * @typedef {object} Store
 * @property {(experiment: string) => Promise<Entry | null>} read
 * @property {<T>(experiment: string, change: (entry: Entry) => [Entry, T]) => Promise<T>} change
 * @property {() => Promise<string[]>} names
 */

/** @returns {Entry} */
export const blank = () => ({ payment: null, waiting: [], choice: null, turn: null, publication: null });

/** @param {Payment} paid @param {number} period */
export const allows = (paid, period) => paid.made < paid.reports && paid.period < period;

const changed = () => refused("reports of a person, their period or their promise are not those of before", "experiment.reports_per_person");

/** A device's own account of its reports: paid before they are sent, no oftener than was promised. */
export class Ledger {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
  }

  /** @param {string} experiment identity: server and name @returns {Promise<Entry>} */
  async entry(experiment) {
    return (await this.store.read(experiment)) ?? blank();
  }

  /** Experiments that the ledger has anything of. @returns {Promise<string[]>} */
  names() {
    return this.store.names();
  }

  /**
   * Pay, keep the bytes that are paid for, and erase the choice behind them. Only then may they be sent.
   * @param {string} experiment @param {Omit<Payment, "made">} asked @param {Sealed} sealed
   */
  async pay(experiment, asked, sealed) {
    await this.store.change(experiment, (entry) => {
      const payment = { ...asked, made: 1 };
      const paid = entry.payment ? next(entry.payment, payment) : payment;
      return [{ ...entry, payment: paid, choice: null, waiting: [...entry.waiting, sealed] }, null];
    });
  }

  /** Forget a report that was answered for good, but not its payment. @param {string} experiment @param {Sealed} sealed */
  async answered(experiment, sealed) {
    await this.store.change(experiment, (entry) => {
      const left = entry.waiting.filter(({ body }) => body.length !== sealed.body.length || body.some((byte, i) => byte !== sealed.body[i]));
      return [{ ...entry, waiting: left }, null];
    });
  }

  /**
   * Replace the choice that is kept by what a function makes of it, and return that. None is kept once no report can be made of it.
   * @param {string} experiment
   * @param {(kept: import("../participation.js").Choice | null) => import("../participation.js").Choice | null} change
   */
  keep(experiment, change) {
    return this.store.change(experiment, (entry) => {
      const made = change(entry.choice);
      const choice = made && entry.payment && !allows(entry.payment, made.period) ? null : made;
      return [{ ...entry, choice }, choice];
    });
  }

  /** Erase the choice: no report will be made of it. @param {string} experiment */
  async forget(experiment) {
    await this.keep(experiment, () => null);
  }

  /** Keep a publication in the place of the one before. @param {string} experiment @param {Uint8Array<ArrayBuffer>} publication */
  async remember(experiment, publication) {
    await this.store.change(experiment, (entry) => [{ ...entry, publication }, null]);
  }

  /** What is known of a server. @param {string} server @returns {Promise<import("../log.js").Known | null>} */
  async known(server) {
    return (await this.entry(`${server}#log`)).known ?? null;
  }

  /**
   * Keep what is known of a server, unless something else than before has come to be known meanwhile.
   * @param {string} server @param {import("../log.js").Known} known @param {import("../log.js").Known | null} before
   * @returns {Promise<boolean>} whether it is kept
   */
  know(server, known, before) {
    return this.store.change(`${server}#log`, (entry) => {
      const is = (/** @type {import("../log.js").Known | null} */ one) => (entry.known?.key ?? null) === (one?.key ?? null) && (entry.known?.head ?? null) === (one?.head ?? null);
      return is(known) ? [entry, true] : is(before) ? [{ ...entry, known }, true] : [entry, false];
    });
  }

  /**
   * Whether this time, of so many that the person comes, is the one that was drawn for the report. It is drawn when they
   * first come, and sent to nobody.
   * @param {string} experiment @param {number} times @param {number} seconds @param {number} period
   */
  draw(experiment, times, seconds, period) {
    const drawn = below(times);
    return this.store.change(experiment, (entry) => {
      const before = entry.turn ?? { times, seconds, drawn, come: 0, period };
      if (before.times !== times || before.seconds !== seconds) throw changed();
      const turn = period > before.period ? { ...before, come: before.come + 1, period } : before;
      return [{ ...entry, turn }, turn.come === turn.drawn];
    });
  }
}

/** The payment that another report makes of the one before: the promise is paid for as a whole.
 * @param {Payment} before @param {Payment} asked @returns {Payment} */
function next(before, asked) {
  if (before.made >= before.reports) throw alreadyReported();
  if (asked.pinned !== before.pinned) throw changed();
  if (!allows(before, asked.period)) throw alreadyReported("this device has reported in this period: come back in the next one");
  if (asked.version <= before.version) throw alreadyReported("this device has reported to this round");
  return { ...asked, made: before.made + 1 };
}
