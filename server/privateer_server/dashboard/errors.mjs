// Why there is no answer that can be used.

/** The server answered that it will not; `problem` is what it said of that. */
export class Refused extends Error {
  constructor(status, detail, problem = {}) {
    super(detail);
    Object.assign(this, { status, problem });
  }
}

/** The server did not answer. */
export class Silent extends Error {}
