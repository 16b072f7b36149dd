// @ts-check
/** A hook of React: a person's arm, one for all components of a page, and the default where a server renders. */

import { useCallback, useSyncExternalStore } from "react";

/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./in-time.js").Arm} Arm */
/** `ready`: whether it is known what the page shows; until then, and at a server, `name` is the default.
 * @typedef {Arm & {ready: boolean}} ShownArm */

/** What the components of a page show of an experiment: React renders, leaves and comes back as often as it likes. */
class Shown {
  constructor() {
    /** @type {Arm | null} */
    this.arm = null;
    /** @type {Promise<void> | null} */
    this.asked = null;
    /** @type {Set<() => void>} */
    this.followers = new Set();
  }

  /** @param {() => void} changed @param {() => Promise<Arm>} ask */
  follow(changed, ask) {
    if (!this.followers.size) this.asked ??= ask().then((arm) => this.take(arm));
    this.followers.add(changed);
    return () => {
      this.followers.delete(changed);
      // A default gives way to an arm, but not while somebody looks at it.
      if (!this.followers.size && !this.arm?.session) this.arm = null;
    };
  }

  /** @param {Arm} arm */
  take(arm) {
    this.asked = null;
    if (arm.session || (!this.arm && this.followers.size)) this.arm = arm;
    for (const changed of this.followers) changed();
  }
}

const WAITING = { fallback: null, session: null, report: async () => /** @type {const} */ ("not-requested") };

/** @type {WeakMap<Client, Map<string, Shown>>} */
const pages = new WeakMap();

/** @param {Client} client @param {string} name */
function getShown(client, name) {
  const page = pages.get(client) ?? new Map();
  if (!page.has(name)) pages.set(client, page.set(name, new Shown()));
  return page.get(name);
}

/**
 * This person's arm, as `Client.arm` gives it. Nothing is asked while React renders: a server, and the first render in the
 * browser, show the default.
 * @param {Client} client @param {string} name of the experiment @param {Record<string, any> | null} context a value for each feature;
 * null: not known yet, and nothing is chosen
 * @param {{default: any, within?: number, sticky?: boolean}} options as `Client.arm` has it
 * @returns {ShownArm}
 */
export function useArm(client, name, context, options) {
  const shownArm = getShown(client, name);
  // The context and the default of the render in which it is known: the arm stands.
  const follow = useCallback((/** @type {() => void} */ changed) => (context ? shownArm.follow(changed, () => client.arm(name, context, options)) : () => {}), [shownArm, !context]);
  const arm = useSyncExternalStore(follow, () => shownArm.arm, () => null);
  const { report } = arm ?? WAITING;
  // Whoever awaits `session.report` gets errors; a handler of a click does not wait for any.
  const reportQuietly = (/** @type {any} */ reward) =>
    report(reward).catch((/** @type {any} */ error) => {
      client.tell(`${name}: not reported: ${error.type ? error.message : error.name}`);
      return /** @type {const} */ ("refused");
    });
  return { ...(arm ?? WAITING), report: reportQuietly, name: arm?.session ? arm.name : options.default, ready: arm !== null };
}
