// @ts-check
/** What the coins that several pages were offered have served for: `choose` cannot wait for the ledger. */

import { isSameChoice } from "../choice.js";
import { lock, unlock } from "./vault.js";

/** @typedef {import("../participation.js").Choice} Choice */

/** A ledger that nobody has any more listens to no other page. */
const unheard = new FinalizationRegistry((/** @type {BroadcastChannel} */ channel) => channel.close());

/** The first choice by each offered coins, of this page and of the others that have the ledger open. */
export class Uses {
  /** @param {import("./ledger.js").Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Map<string, Choice>} */
    this.first = new Map();
    /** @type {BroadcastChannel | null} */
    this.channel = null;
  }

  /** Hear of the choices of other pages from now on, where the platform has a way. */
  listen() {
    if (this.channel || !this.store.place || !globalThis.BroadcastChannel) return;
    const channel = new BroadcastChannel(`privateer ${this.store.place}`);
    const self = new WeakRef(this);
    channel.onmessage = ({ data }) => void self.deref()?.heard(data).catch(() => {}); // not of this ledger
    unheard.register(this, channel);
    // Node would wait for messages for ever.
    /** @type {{unref?: () => void}} */ (channel).unref?.();
    this.channel = channel;
  }

  /**
   * Use offered coins for a choice, unless they have served for another one: whoever knows of two would know more of the
   * context than the arm says. @param {string} experiment @param {Choice} choice @returns {boolean} whether it may have them
   */
  claim(experiment, choice) {
    const first = this.keep(experiment, choice);
    if (first === choice) this.tell(experiment, choice);
    return isSameChoice(first, choice) && first.period === choice.period;
  }

  /** The first choice by its coins. @param {string} experiment @param {Choice} choice */
  keep(experiment, choice) {
    const name = `${experiment} ${choice.slot}`;
    const first = this.first.get(name) ?? choice;
    this.first.set(name, first);
    return first;
  }

  /** Tell the other pages of a choice, if its coins were offered: in the ledger's encryption, and with one size for everybody.
   * @param {string} experiment @param {Choice} choice */
  async tell(experiment, choice) {
    if (!this.channel || this.first.get(`${experiment} ${choice.slot}`) !== choice) return;
    try {
      this.channel.postMessage({ experiment, body: await lock(await this.store.key(), choice, `${experiment}#use`) });
    } catch {
      // The choice says what is wrong with the ledger.
    }
  }

  /** @param {{experiment: string, body: Uint8Array<ArrayBuffer>}} told */
  async heard({ experiment, body }) {
    this.keep(experiment, await unlock(await this.store.key(), body, `${experiment}#use`));
  }
}
