"use strict";
// Drives a server through the official TypeScript client, and checks every answer.
//
//     node main.cjs --url URL [--token TOKEN] [--only TEXT] SUITE...
//
// Suites: agents, runs, sessions, builtin (needs --token); `begin` and `finish JSON` before and
// after a restart. Exits with 1 when a check failed.

const { parseArgs } = require("node:util");
const { Target } = require("./check.cjs");
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
  let ran = 0;
  let failed = 0;
  for (const name of positionals) {
    const suite = SUITES.get(name);
    if (!suite) throw new Error(`there is no suite ${name}; there are ${[...SUITES.keys()].join(", ")}`);
    const result = await suite.run(target, values.only);
    ran += result.ran;
    failed += result.failed;
  }
  console.log(`${ran} checks ran, ${failed} failed`);
  if (failed > 0 || ran === 0) process.exitCode = 1;
}

main().catch((error) => {
  console.log(`FAILED\n${error?.stack ?? error}`);
  process.exitCode = 1;
});
