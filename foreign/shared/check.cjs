"use strict";
// Named checks: each runs separately, prints one line, and fails alone.

const { setTimeout: pause } = require("node:timers/promises");

// The time limit for one check, in milliseconds.
const CHECK_LIMIT = 60_000;

/** Checks in the order in which they were declared. */
class Suite {
  #checks = [];

  constructor(name) {
    this.name = name;
  }

  /** Declares a check; if `applies` is given, it runs only with targets that fulfil it. */
  check(name, run, applies = () => true) {
    this.#checks.push({ name, run, applies });
  }

  /** Runs the checks that apply; returns how many ran and how many failed. */
  async run(target, only) {
    let ran = 0;
    let failed = 0;
    for (const { name, run, applies } of this.#checks) {
      if (!applies(target) || (only && !name.includes(only))) continue;
      ran += 1;
      const begun = performance.now();
      try {
        await this.around((each) => bounded(run(each)), target);
        console.log(`ok ${this.name}.${name} (${(performance.now() - begun).toFixed(0)} ms)`);
      } catch (error) {
        failed += 1;
        console.log(`FAILED ${this.name}.${name}\n${error?.stack ?? error}`);
        if (error?.data) console.log(JSON.stringify(error.data));
        if (error?.cause) console.log(`because of ${error.cause?.stack ?? error.cause}`);
      }
    }
    return { ran, failed };
  }

  /** Runs one check. A suite can override it to set up and clean up around each check. */
  around(run, target) {
    return run(target);
  }
}

/** Runs the suites with these names and prints the totals; returns the exit code. */
async function runSuites(suites, names, target, only) {
  let ran = 0;
  let failed = 0;
  for (const name of names) {
    const suite = suites.get(name);
    if (!suite) throw new Error(`unknown suite ${name}: choose from ${[...suites.keys()].join(", ")}`);
    const result = await suite.run(target, only);
    ran += result.ran;
    failed += result.failed;
  }
  console.log(`${ran} checks ran, ${failed} failed`);
  return failed > 0 || ran === 0 ? 1 : 0;
}

async function bounded(work) {
  const over = new AbortController();
  const limit = pause(CHECK_LIMIT, undefined, { signal: over.signal }).then(() => {
    throw new Error(`the check took longer than ${CHECK_LIMIT} ms`);
  });
  limit.catch(() => {});
  try {
    await Promise.race([work, limit]);
  } finally {
    over.abort();
  }
}

module.exports = { Suite, runSuites };
