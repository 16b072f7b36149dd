/** Calls through generated types, which have to allow them; run with three addresses and a token. */

import createClient from "openapi-fetch";
import type { paths as Issuer } from "./issuer.js";
import type { paths as Server } from "./server.js";
import type { paths as Shuffler } from "./shuffler.js";

declare const process: { argv: string[] };

function check(holds: unknown, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

const [server = "", shuffler = "", admin = "", token = ""] = process.argv.slice(2);
const people = createClient<Server>({ baseUrl: server });
const operator = createClient<Server>({ baseUrl: admin, headers: { Authorization: `Bearer ${token}` } });
const path = { name: "peaks" };

const { data: list } = await people.GET("/experiments");
check(list?.["experiments"]?.some(({ name }) => name === "peaks"), "the list names the experiment");
const { data: policy } = await people.GET("/experiments/{name}/policy/{version}", { params: { path: { ...path, version: 1 } } });
check(typeof policy === "object" && policy.version === 1, "the policy is typed");
const { data: answer } = await people.GET("/experiments/{name}/answer", { params: { path } });
check(answer?.experiment === "peaks", "the answer is typed");
const { error: missing } = await people.GET("/experiments/{name}", { params: { path: { name: "nobody" } } });
check(missing?.type === "urn:privateer:problem:not-found" && missing.remedy, "the type tells problems apart");
for (const change of ["pause", "resume"] as const) {
  const { data } = await operator.POST(`/experiments/{name}/${change}`, { params: { path } });
  check(data?.changed, change);
}
const body = { experiment: {}, privacy: {}, algorithm: {} };
const { error: wrong } = await operator.POST("/experiments", { body });
check(wrong?.type === "urn:privateer:problem:spec-invalid" && wrong.field, "the field of a wrong spec");
const mixing = createClient<Shuffler>({ baseUrl: shuffler });
const { data: status } = await mixing.GET("/experiments/{name}", { params: { path } });
check(status?.open, "the shuffler takes reports");
export const keys: keyof Issuer = "/token-keys";
console.log("called");
