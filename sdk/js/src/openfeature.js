// @ts-check
/**
 * Providers for OpenFeature: a flag is an experiment, to evaluate it is to choose, and to track is to report. They have
 * the interface by its shape, and need no package of OpenFeature themselves.
 */

import { PrivateerError, invalid } from "./errors.js";
import { WITHIN } from "./in-time.js";

/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./delivery.js").ReportStatus} ReportStatus */
/** @typedef {{targetingKey?: string | number, [key: string]: any}} Context */
/** @typedef {{value?: number, [key: string]: any}} Details */

/**
 * @template T
 * @typedef {{value: T, variant?: string, reason?: string, errorCode?: any, errorMessage?: string, flagMetadata?: Record<string, string | number | boolean>}} Resolution
 */

/**
 * @typedef {object} Settings
 * @property {Record<string, string>} [outcomes] the experiment that each event is the outcome of; by default an event of an
 * experiment's name
 * @property {Record<string, Record<string, any>>} [values] the value of each arm by experiment; by default "on" and "off",
 * or "true" and "false", are booleans, and other arms are their names
 * @property {(experiment: string, outcome: ReportStatus | PrivateerError) => void} [reported] told what became of a report
 * @property {string[]} [fresh] the experiments in which a person whose features change, while the provider runs, gets a fresh
 * choice
 * @property {number} [within] seconds for an evaluation, .3 by default; whoever has no arm by then gets the default, and at a later
 * evaluation the arm
 */

const BOOLEANS = new Map([["on", true], ["off", false], ["true", true], ["false", false]]);
const CODES = /** @type {Record<string, string>} */ ({ "input-invalid": "INVALID_CONTEXT", "not-found": "FLAG_NOT_FOUND", deleted: "FLAG_NOT_FOUND" });

/** @template T @param {T} value @param {string} errorCode @param {string} errorMessage @returns {Resolution<T>} */
const failedDetails = (value, errorCode, errorMessage) => ({ value, reason: "ERROR", errorCode, errorMessage });

/** @template T @param {T} value @param {unknown} error @returns {Resolution<T>} */
function errorDetails(value, error) {
  if (!(error instanceof PrivateerError)) throw error;
  return failedDetails(value, CODES[error.type] ?? "GENERAL", error.message);
}

const OTHER = "another targetingKey, and a client is one person: people of one process need a PrivateerServerProvider";

/** The targeting key; a number is the person of its text. @param {Context} context @returns {string} */
const readTargetingKey = ({ targetingKey }) => (targetingKey === undefined || targetingKey === null ? "" : `${targetingKey}`);

/** A person's session, whose arm stands. */
class Flag {
  /** @param {Session} session @param {Settings} settings @param {string} name of the experiment */
  constructor(session, settings, name) {
    this.session = session;
    this.settings = settings;
    /** Whether other features are a fresh choice. */
    this.fresh = settings.fresh?.includes(name) ?? false;
    /** @type {string | null} */
    this.arm = null;
    this.seen = "";
  }

  /** The arm of this person. @param {Context} context */
  choose(context) {
    const { features } = this.session;
    // What is no feature, and the targeting key, is left out: a device knows one person.
    const values = Object.fromEntries(features.filter((name) => Object.hasOwn(context, name)).map((name) => [name, context[name]]));
    const seen = JSON.stringify(values);
    const isOther = this.fresh && this.arm !== null && this.seen !== seen;
    if (this.arm === null || isOther) [this.arm, this.seen] = [this.session.choose(values, { fresh: isOther }), seen];
    return this.arm;
  }

  /** @template T @param {string} kind @param {T} value by default @param {string} name @param {Context} context @returns {Resolution<T>} */
  resolved(kind, value, name, context) {
    const arm = this.choose(context);
    const values = this.settings.values?.[name];
    const armValue = values ? values[arm] : kind === "boolean" ? BOOLEANS.get(arm) : arm;
    if (typeof armValue !== kind) return failedDetails(value, "TYPE_MISMATCH", `${name}: the arm has no ${kind}: give one in settings.values`);
    const { reportRequested, offline, participation } = this.session;
    return { value: armValue, variant: arm, reason: "SPLIT", flagMetadata: { version: participation.round.version, asked: reportRequested, offline } };
  }

  /** @param {Details} details @returns {Promise<ReportStatus>} */
  async report({ value = 1, ...details }) {
    const { guardrails } = this.session.participation.spec;
    const answers = Object.fromEntries(guardrails.map((name) => [name, details[name] ?? false]));
    return this.session.report(guardrails.length ? { reward: value, ...answers } : value);
  }
}

/** What both providers share. */
class Provider {
  metadata = { name: "privateer" };

  /** @param {Settings} settings */
  constructor(settings) {
    this.settings = settings;
    /** Reports on their way. @type {Set<Promise<void>>} */
    this.going = new Set();
    /** @type {Map<string, Flag | PrivateerError | Promise<Flag>>} */
    this.flags = new Map();
  }

  /** Report what came of an experiment's choice. Nobody waits for it, but `onClose`. @param {string} name @param {() => Promise<ReportStatus>} report */
  send(name, report) {
    const { reported = () => {} } = this.settings;
    const going = report().then(
      (outcome) => reported(name, outcome),
      (error) => reported(name, error),
    );
    this.going.add(going);
    going.finally(() => this.going.delete(going));
  }

  /** The experiment that an event is the outcome of. @param {string} event */
  experimentOf(event) {
    return this.settings.outcomes?.[event] ?? event;
  }

  /** Wait for reports on their way, and for choices that are being kept. */
  async onClose() {
    const flags = await Promise.allSettled(this.flags.values());
    const keeping = flags.map((flag) => flag.status === "fulfilled" && flag.value instanceof Flag && flag.value.session.keeping);
    await Promise.allSettled([...keeping, ...this.going]);
  }
}

/**
 * For `@openfeature/web-sdk`: one person, whose context is set once and changes seldom. Experiments are joined when the
 * provider is set; evaluations are then immediate, and the same on every page until the report is made or its window ends.
 */
export class PrivateerWebProvider extends Provider {
  runsOn = /** @type {any} */ ("client");

  /** @param {Client} client @param {Settings & {experiments: string[]}} settings the experiments of this page */
  constructor(client, settings) {
    super(settings);
    if (!Array.isArray(settings?.experiments)) throw invalid("list the experiments of this page", "settings.experiments");
    this.client = client;
    this.experiments = settings.experiments;
    /** @type {Map<string, Flag | PrivateerError>} */
    this.flags = new Map();
    this.person = "";
  }

  /** Join all experiments; one that cannot be joined in time gives the default value until it is. */
  async initialize() {
    await Promise.all(this.experiments.map((name) => this.join(name)));
  }

  /** @param {string} name */
  async join(name) {
    const { client, settings } = this;
    const join = async (/** @type {Promise<Session>} */ joining) => {
      try {
        this.flags.set(name, new Flag(await joining, settings, name));
      } catch (error) {
        if (!(error instanceof PrivateerError)) throw error;
        this.flags.set(name, error);
      }
    };
    await join(client.inTime.session(name, settings.within ?? WITHIN));
    // The server's answer serves the evaluations that come after it.
    const late = client.inTime.going.get(name)?.joined;
    if (late && this.flags.get(name) instanceof PrivateerError) void join(late).catch(() => {});
  }

  /** A new context: who has an arm keeps it. Nothing is asked of the server. */
  onContextChange() {}

  /** Whether this client, which is one person, is asked about another one. @param {Context | undefined} context */
  isOther(context) {
    const key = readTargetingKey(context ?? {});
    this.person ||= key;
    return key !== "" && key !== this.person;
  }

  /** @template T @param {string} kind @param {string} name @param {T} value @param {Context} context @returns {Resolution<T>} */
  resolve(kind, name, value, context) {
    const flag = this.flags.get(name);
    if (!flag) return failedDetails(value, "FLAG_NOT_FOUND", `${name}: list it in settings.experiments`);
    if (this.isOther(context)) return failedDetails(value, "INVALID_CONTEXT", OTHER);
    try {
      return flag instanceof PrivateerError ? errorDetails(value, flag) : flag.resolved(kind, value, name, context);
    } catch (error) {
      return errorDetails(value, error);
    }
  }

  /** @param {string} name @param {boolean} value @param {Context} context */
  resolveBooleanEvaluation(name, value, context) {
    return this.resolve("boolean", name, value, context);
  }

  /** @param {string} name @param {string} value @param {Context} context */
  resolveStringEvaluation(name, value, context) {
    return this.resolve("string", name, value, context);
  }

  /** @param {string} name @param {number} value @param {Context} context */
  resolveNumberEvaluation(name, value, context) {
    return this.resolve("number", name, value, context);
  }

  /** @template {any} T @param {string} name @param {T} value @param {Context} context */
  resolveObjectEvaluation(name, value, context) {
    return this.resolve("object", name, value, context);
  }

  /** @param {string} event @param {Context} context @param {Details} [details] */
  track(event, context, details = {}) {
    const name = this.experimentOf(event);
    const flag = this.isOther(context) ? undefined : this.flags.get(name);
    if (flag instanceof Flag && flag.arm !== null) this.send(name, () => flag.report(details));
  }
}

/**
 * For `@openfeature/server-sdk`: people come and go, each with a context of their own. Each needs a client with a ledger
 * of their own, which the application gives by the targeting key; the key is not sent.
 */
export class PrivateerServerProvider extends Provider {
  runsOn = /** @type {any} */ ("server");

  /** @param {(targetingKey: string) => Client} clientOf @param {Settings} [settings] */
  constructor(clientOf, settings = {}) {
    super(settings);
    if (typeof clientOf !== "function") throw invalid("give a function from a person's targeting key to their client", "clientOf");
    this.clientOf = clientOf;
    /** @type {Map<string, Promise<Flag>>} */
    this.flags = new Map();
    /** @type {Map<string, Client>} */
    this.clients = new Map();
  }

  /** A person's client: the same until their first session is there, so that they join once. @param {string} key */
  client(key) {
    const client = this.clients.get(key) ?? this.clientOf(key);
    this.clients.set(key, client);
    return client;
  }

  /** @param {string} name @param {string} key @returns {Promise<Flag>} */
  flag(name, key) {
    const identity = JSON.stringify([name, key]);
    const { within = WITHIN } = this.settings;
    const flag = this.flags.get(identity) ?? this.client(key).inTime.session(name, within).then((session) => new Flag(session, this.settings, name));
    this.flags.set(identity, flag);
    // Who could not join tries again at the next evaluation.
    flag.catch(() => this.flags.delete(identity));
    return flag;
  }

  /** Forget a person's sessions; their ledger stays. @param {string} key */
  forget(key) {
    for (const identity of this.flags.keys()) if (JSON.parse(identity)[1] === key) this.flags.delete(identity);
    this.clients.delete(key);
  }

  /** @template T @param {string} kind @param {string} name @param {T} value @param {Context} context @returns {Promise<Resolution<T>>} */
  async resolve(kind, name, value, context) {
    const key = readTargetingKey(context);
    if (!key) return failedDetails(value, "TARGETING_KEY_MISSING", "give a targetingKey: each person has a ledger of their own");
    try {
      return (await this.flag(name, key)).resolved(kind, value, name, context);
    } catch (error) {
      return errorDetails(value, error);
    }
  }

  /** @param {string} name @param {boolean} value @param {Context} context */
  resolveBooleanEvaluation(name, value, context) {
    return this.resolve("boolean", name, value, context);
  }

  /** @param {string} name @param {string} value @param {Context} context */
  resolveStringEvaluation(name, value, context) {
    return this.resolve("string", name, value, context);
  }

  /** @param {string} name @param {number} value @param {Context} context */
  resolveNumberEvaluation(name, value, context) {
    return this.resolve("number", name, value, context);
  }

  /** @template {any} T @param {string} name @param {T} value @param {Context} context */
  resolveObjectEvaluation(name, value, context) {
    return this.resolve("object", name, value, context);
  }

  /** @param {string} event @param {Context} context @param {Details} [details] */
  track(event, context, details = {}) {
    const name = this.experimentOf(event);
    const flag = this.flags.get(JSON.stringify([name, readTargetingKey(context)]));
    if (flag) this.send(name, async () => (await flag).report(details));
  }
}
