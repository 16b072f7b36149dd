// @ts-check
/** The issuer of upload tokens: a module of its own, since most pages need none. */

import { normalizeUrl } from "./exchange.js";
import { Tokens } from "./tokens/tokens.js";

/** What the application's backend signed for this device and an experiment. @typedef {(experiment: string) => string | Promise<string>} Attest */

/** An issuer that the application trusts. */
export class Issuer {
  /** @param {string} url its address @param {{attest?: Attest}} [how] attest: gives what the backend signed, if the issuer asks for it */
  constructor(url, { attest } = {}) {
    this.url = normalizeUrl(url, "issuer");
    this.attest = attest;
  }

  /** @param {import("./client.js").Client} client @param {string} name of the experiment */
  tokens(client, name) {
    return new Tokens(client, this, name);
  }
}
