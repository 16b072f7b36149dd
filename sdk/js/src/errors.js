// @ts-check
/** Errors with the stable names of docs/problems.md. No message carries a context, arm, reward or raw value. */

export class PrivateerError extends Error {
  /**
   * @param {string} type name of the problem, as `terms-refused`
   * @param {string} detail what went wrong
   * @param {string | null} [field] dotted name of what is wrong
   */
  constructor(type, detail, field = null) {
    super(field === null ? detail : `${field}: ${detail}`);
    this.name = "PrivateerError";
    this.type = type;
    this.field = field;
  }
}

/** @param {string} detail @param {string | null} [field] */
export const malformed = (detail, field = null) => new PrivateerError("malformed-report", detail, field);

/** @param {string} detail @param {string} field */
export const refused = (detail, field) => new PrivateerError("terms-refused", detail, field);

/** Refuse a randomizer that nobody can make. @param {unknown} good whether it can be made @param {string} field */
export function requirePossible(good, field) {
  if (!good) throw refused("there is no such randomizer", field);
}

/** Whether what is told has these values; what it does not say is false. @param {any} problem @param {object} fields */
export const formatFields = (problem, fields) => Object.entries(fields).every(([name, value]) => JSON.stringify(problem?.[name] ?? false) === JSON.stringify(value));

/** Refuse what this client does not know, or nobody does. @param {unknown} good @param {string} [field] what it is */
export function requireKnown(good, field = "policy") {
  if (!good) throw malformed("not as this client knows it", field);
}

/** @param {string} detail @param {string} field */
export const invalid = (detail, field) => new PrivateerError("input-invalid", detail, field);

/** A file that nobody may decide by. @param {string} detail */
export const unusable = (detail) => new PrivateerError("spec-invalid", detail, "export");

/** @param {string} detail */
export const unavailable = (detail) => new PrivateerError("unavailable", detail);

/** The platform lacks something. @param {string} detail @param {string} field */
export const unsupported = (detail, field) => new PrivateerError("unsupported", detail, field);

/** Nothing was paid or sent, as the device cannot write it down. @param {string} detail */
export const unwritable = (detail) => new PrivateerError("ledger-unwritable", detail, "ledger");

/** @param {string} [detail] */
export const alreadyReported = (detail = "this device has reported to the experiment") =>
  new PrivateerError("already-reported", detail);
