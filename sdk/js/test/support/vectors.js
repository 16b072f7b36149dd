// @ts-check
/** The vectors of the wire format: the few of docs/wire, or all of them in the folder that PRIVATEER_VECTORS names. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = process.env.PRIVATEER_VECTORS ?? fileURLToPath(new URL("../../../../docs/wire", import.meta.url));

/** What a file has. @param {string} name @returns {any} */
export const vectors = (name) => JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8"));
