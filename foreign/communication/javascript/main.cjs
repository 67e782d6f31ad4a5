"use strict";
// Drives a server through the official TypeScript client, and checks every response.
//
//     node main.cjs --url URL [--token TOKEN] [--only TEXT] SUITE...
//
// Suites: agents, runs, sessions, builtin (needs --token); `begin` and `finish JSON` before and
// after a restart. Exits with 1 when a check failed.

const { parseArgs } = require("node:util");
const { runSuites } = require("../../shared/check.cjs");
const { Target } = require("./target.cjs");
const restart = require("./restart.cjs");

const SUITES = new Map(
  ["agents", "runs", "sessions", "builtin"].map((name) => [name, require(`./${name}.cjs`).suite]),
);

async function main() {
  const { values, positionals } = parseArgs({
    options: { url: { type: "string" }, token: { type: "string" }, only: { type: "string" } },
    allowPositionals: true,
  });
  if (!values.url || positionals.length === 0) {
    throw new Error("usage: node main.cjs --url URL [--token TOKEN] [--only TEXT] SUITE...");
  }
  const target = new Target(values.url, values.token);
  if (positionals[0] === "begin") return restart.begin(target);
  if (positionals[0] === "finish") return restart.finish(target, positionals[1]);
  process.exitCode = await runSuites(SUITES, positionals, target, values.only);
}

main().catch((error) => {
  console.log(`FAILED\n${error?.stack ?? error}`);
  process.exitCode = 1;
});
