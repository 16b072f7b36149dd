// @ts-check
/**
 * People who take part in an experiment, each with a device of their own; arm "a" suits everybody. Where reports need upload
 * tokens, this program is the application's backend, too: it vouches for each of them by a pseudonym.
 *
 *     node people.js SERVER SHUFFLER EXPERIMENT PEOPLE '{"epsilon": 4}' [ISSUER SECRET]
 */

import { createHmac, randomUUID } from "node:crypto";

import { Client, MemoryLedger } from "../src/node.js";

const [server, shuffler, experiment, people, limits = "{}", issuer, secret = ""] = process.argv.slice(2);
const AT_ONCE = 8;
/** @type {Record<string, number>} */
const outcomes = {};
let left = Number(people);

/** What a backend signs for a person's device. @param {string} name */
function attest(name) {
  const [pseudonym, expires] = [randomUUID(), Math.floor(Date.now() / 1000) + 600];
  const text = ["privateer/attestation/1", name, pseudonym, expires].join("\n");
  return `${pseudonym}.${expires}.${createHmac("sha256", Buffer.from(secret, "hex")).update(text).digest("hex")}`;
}

/** One person: join, choose, report. */
async function person() {
  const client = new Client(server, { shuffler, issuer, attest, ledger: new MemoryLedger(), limits: JSON.parse(limits) });
  const session = await client.join(experiment);
  const uniform = () => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;
  const arm = session.choose(Object.fromEntries(session.features.map((name) => [name, uniform()])));
  const outcome = await session.report(arm === "a" ? 1 : 0);
  outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
}

/** People, one after another. */
async function some() {
  while (left-- > 0) await person();
}

await Promise.all(Array.from({ length: AT_ONCE }, some));
console.log(JSON.stringify(outcomes));
