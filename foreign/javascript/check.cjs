"use strict";
// Named checks: each runs by itself, prints one line, and fails alone.

const assert = require("node:assert/strict");
const { setTimeout: pause } = require("node:timers/promises");
const { Client } = require("acp-sdk");

// Milliseconds that one check may take.
const CHECK_LIMIT = 60_000;
// Milliseconds that a run may take to get where a check waits for it.
const SETTLE_LIMIT = 20_000;

/** The server under test, and how to reach it. */
class Target {
  constructor(url, token) {
    this.url = url;
    this.token = token;
  }

  fetch = (address, options = {}) => {
    const headers = new Headers(options.headers);
    if (this.token) headers.set("authorization", `Bearer ${this.token}`);
    return fetch(address, { ...options, headers });
  };

  client() {
    return new Client({ baseUrl: this.url, fetch: this.fetch });
  }

  /** Sends what the official client cannot, below the server's address. */
  async send(method, path, body) {
    const base = this.url.replace(/\/$/, "");
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    const headers = { "content-type": "application/json" };
    return this.fetch(`${base}${path}`, { method, body: text, headers });
  }
}

/** Checks in the order in which they were declared. */
class Suite {
  #checks = [];

  constructor(name) {
    this.name = name;
  }

  check(name, run) {
    this.#checks.push({ name, run });
  }

  /** Runs the checks; gives how many ran and how many failed. */
  async run(target, only) {
    let ran = 0;
    let failed = 0;
    for (const { name, run } of this.#checks) {
      if (only && !name.includes(only)) continue;
      ran += 1;
      const begun = performance.now();
      try {
        await bounded(run(target));
        console.log(`ok ${this.name}.${name} (${(performance.now() - begun).toFixed(0)} ms)`);
      } catch (error) {
        failed += 1;
        console.log(`FAILED ${this.name}.${name}\n${error?.stack ?? error}`);
        if (error?.cause) console.log(`because of ${error.cause?.stack ?? error.cause}`);
      }
    }
    return { ran, failed };
  }
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

/** Everything that a stream gives. */
async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** Fails unless the call is refused with this code. */
async function refused(call, code) {
  await assert.rejects(call, (error) => {
    assert.equal(error.name, "ACPError", `${error.stack}`);
    assert.equal(error.code, code);
    assert.ok(error.message, "the error has no message");
    return true;
  });
}

/** Looks at a run until it has this status. */
async function settled(client, run, status) {
  const deadline = performance.now() + SETTLE_LIMIT;
  while (run.status !== status) {
    const isOver = ["completed", "failed", "cancelled"].includes(run.status);
    if (isOver || performance.now() > deadline) {
      assert.fail(`the run is ${run.status}, not ${status}: ${JSON.stringify(run)}`);
    }
    await pause(20);
    run = await client.runStatus(run.run_id);
  }
  return run;
}

/** The text of a message. */
function text(message) {
  return message.parts.map((part) => part.content ?? "").join("");
}

module.exports = { Suite, Target, all, refused, settled, text };
