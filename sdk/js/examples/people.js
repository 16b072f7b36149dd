// @ts-check
/**
 * People who take part in an experiment, each with a device of their own; arm "a" suits everybody.
 *
 *     node people.js SERVER SHUFFLER EXPERIMENT PEOPLE '{"epsilon": 4}'
 */

import { Client, MemoryLedger } from "../src/index.js";

const [server, shuffler, experiment, people, limits = "{}"] = process.argv.slice(2);
const AT_ONCE = 8;
/** @type {Record<string, number>} */
const outcomes = {};
let left = Number(people);

/** One person: join, choose, report. */
async function person() {
  const client = new Client(server, { shuffler, ledger: new MemoryLedger(), limits: JSON.parse(limits) });
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
