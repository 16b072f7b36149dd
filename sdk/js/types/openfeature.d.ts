/**
 * Providers for OpenFeature: a flag is an experiment, to evaluate it is to choose, and to track is to report. They have
 * the interface by its shape, and need no package of OpenFeature themselves.
 */
import { PrivateerError } from "./errors.js";
export type Client = import("./client.js").Client;
export type Session = import("./session.js").Session;
export type Outcome = import("./delivery.js").Outcome;
export type Context = {
    targetingKey?: string;
    [key: string]: any;
};
export type Details = {
    value?: number;
    [key: string]: any;
};
export type Resolution<T> = {
    value: T;
    variant?: string;
    reason?: string;
    errorCode?: any;
    errorMessage?: string;
    flagMetadata?: Record<string, string | number | boolean>;
};
export type Settings = {
    /**
     * the experiment that each event is the outcome of; by default an event of an
     * experiment's name
     */
    outcomes?: Record<string, string>;
    /**
     * the value of each arm by experiment; by default "on" and "off",
     * or "true" and "false", are booleans, and other arms are their names
     */
    values?: Record<string, Record<string, any>>;
    /**
     * told what became of a report
     */
    reported?: (experiment: string, outcome: Outcome | PrivateerError) => void;
    /**
     * the experiments in which a person whose features change, while the provider runs, gets a fresh
     * choice
     */
    fresh?: string[];
};
/** A person's session, whose arm stands. */
declare class Flag {
    session: import("./session.js").Session;
    settings: Settings;
    /** Whether other features are a fresh choice. */
    fresh: boolean;
    /** @type {string | null} */
    arm: string | null;
    seen: string;
    /** @param {Session} session @param {Settings} settings @param {string} name of the experiment */
    constructor(session: Session, settings: Settings, name: string);
    /** The arm of this person. @param {Context} context */
    choose(context: Context): string;
    /** @template T @param {string} kind @param {T} value by default @param {string} name @param {Context} context @returns {Resolution<T>} */
    resolved<T>(kind: string, value: T, name: string, context: Context): Resolution<T>;
    /** @param {Details} details @returns {Promise<Outcome>} */
    report({ value, ...more }: Details): Promise<Outcome>;
}
/** What both providers share. */
declare class Provider {
    settings: Settings;
    /** Reports on their way. @type {Set<Promise<void>>} */
    going: Set<Promise<void>>;
    /** @type {Map<string, Flag | PrivateerError | Promise<Flag>>} */
    flags: Map<string, Flag | PrivateerError | Promise<Flag>>;
    metadata: {
        name: string;
    };
    /** @param {Settings} settings */
    constructor(settings: Settings);
    /** Report what came of an experiment's choice. Nobody waits for it, but `onClose`. @param {string} name @param {() => Promise<Outcome>} report */
    send(name: string, report: () => Promise<Outcome>): void;
    /** The experiment that an event is the outcome of. @param {string} event */
    experimentOf(event: string): string;
    /** Wait for reports on their way, and for choices that are being kept. */
    onClose(): Promise<void>;
}
/**
 * For `@openfeature/web-sdk`: one person, whose context is set once and changes seldom. Experiments are joined when the
 * provider is set; evaluations are then immediate, and the same on every page until the report is made or its window ends.
 */
export declare class PrivateerWebProvider extends Provider {
    client: import("./client.js").Client;
    experiments: string[];
    /** @type {Map<string, Flag | PrivateerError>} */
    flags: Map<string, Flag | PrivateerError>;
    runsOn: any;
    /** @param {Client} client @param {Settings & {experiments: string[]}} settings the experiments of this page */
    constructor(client: Client, settings: Settings & {
        experiments: string[];
    });
    /** Join all experiments; one that cannot be joined gives the default value. */
    initialize(): Promise<void>;
    /** @param {string} name */
    join(name: string): Promise<void>;
    /** A new context: who has an arm keeps it. Nothing is asked of the server. */
    onContextChange(): void;
    /** @template T @param {string} kind @param {string} name @param {T} value @param {Context} context @returns {Resolution<T>} */
    resolve<T>(kind: string, name: string, value: T, context: Context): Resolution<T>;
    /** @param {string} name @param {boolean} value @param {Context} context */
    resolveBooleanEvaluation(name: string, value: boolean, context: Context): Resolution<boolean>;
    /** @param {string} name @param {string} value @param {Context} context */
    resolveStringEvaluation(name: string, value: string, context: Context): Resolution<string>;
    /** @param {string} name @param {number} value @param {Context} context */
    resolveNumberEvaluation(name: string, value: number, context: Context): Resolution<number>;
    /** @template {any} T @param {string} name @param {T} value @param {Context} context */
    resolveObjectEvaluation<T extends any>(name: string, value: T, context: Context): Resolution<T>;
    /** @param {string} event @param {Context} _context @param {Details} [details] */
    track(event: string, _context: Context, details?: Details): void;
}
/**
 * For `@openfeature/server-sdk`: people come and go, each with a context of their own. Each needs a client with a ledger
 * of their own, which the application gives by the targeting key; the key is not sent.
 */
export declare class PrivateerServerProvider extends Provider {
    clientOf: (targetingKey: string) => Client;
    /** @type {Map<string, Promise<Flag>>} */
    flags: Map<string, Promise<Flag>>;
    runsOn: any;
    /** @param {(targetingKey: string) => Client} clientOf @param {Settings} [settings] */
    constructor(clientOf: (targetingKey: string) => Client, settings?: Settings);
    /** @param {string} name @param {string} key @returns {Promise<Flag>} */
    flag(name: string, key: string): Promise<Flag>;
    /** Forget a person's sessions; their ledger stays. @param {string} key */
    forget(key: string): void;
    /** @template T @param {string} kind @param {string} name @param {T} value @param {Context} context @returns {Promise<Resolution<T>>} */
    resolve<T>(kind: string, name: string, value: T, context: Context): Promise<Resolution<T>>;
    /** @param {string} name @param {boolean} value @param {Context} context */
    resolveBooleanEvaluation(name: string, value: boolean, context: Context): Promise<Resolution<boolean>>;
    /** @param {string} name @param {string} value @param {Context} context */
    resolveStringEvaluation(name: string, value: string, context: Context): Promise<Resolution<string>>;
    /** @param {string} name @param {number} value @param {Context} context */
    resolveNumberEvaluation(name: string, value: number, context: Context): Promise<Resolution<number>>;
    /** @template {any} T @param {string} name @param {T} value @param {Context} context */
    resolveObjectEvaluation<T extends any>(name: string, value: T, context: Context): Promise<Resolution<T>>;
    /** @param {string} event @param {Context} context @param {Details} [details] */
    track(event: string, context: Context, details?: Details): void;
}
export {};
