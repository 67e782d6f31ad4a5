"use strict";
// The server under test, and the assertions of checks.

const assert = require("node:assert/strict");
const { setTimeout: pause } = require("node:timers/promises");
const { Client } = require("acp-sdk");

// The time limit for a run to reach the status that a check waits for, in milliseconds.
const SETTLE_LIMIT = 20_000;

/** The server under test, and its address. */
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

  /** Sends a request that the official client cannot send, below the server's address. */
  async send(method, path, body) {
    const base = this.url.replace(/\/$/, "");
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    const headers = { "content-type": "application/json" };
    return this.fetch(`${base}${path}`, { method, body: text, headers });
  }
}

/** All events of a stream. */
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

/** Polls a run until it has this status. */
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

module.exports = { Target, all, refused, settled, text };
