"use strict";
// Work that begins before a server is killed, and its state afterwards.

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const { Message, MessageAwaitResume } = require("acp-sdk");
const { all, text } = require("./target.cjs");

const HELLO = [Message.parse({ parts: [{ content: "Hello!" }] })];
const NOTHING = MessageAwaitResume.parse({ type: "message", message: { parts: [] } });

/** Leaves a completed run and two waiting ones behind, and prints their ids. */
async function begin(target) {
  const client = target.client();
  const session = randomUUID();
  const done = await client.withSession((within) => within.runSync("history_echo", HELLO), session);
  assert.equal(done.status, "completed");
  const waiting = [];
  for (let count = 0; count < 2; count += 1) {
    const run = await client.runSync("awaiter", HELLO);
    assert.equal(run.status, "awaiting");
    waiting.push(run.run_id);
  }
  const events = await client.runEvents(done.run_id);
  console.log(`left ${JSON.stringify({ session, done, events, waiting })}`);
}

/** Finds everything unchanged, answers the waiting runs, and continues the session. */
async function finish(target, left) {
  const { session, done, events, waiting } = JSON.parse(left);
  const client = target.client();
  const plain = (value) => JSON.parse(JSON.stringify(value));
  assert.deepEqual(plain(await client.runStatus(done.run_id)), done);
  assert.deepEqual(plain(await client.runEvents(done.run_id)), events);
  console.log("ok restart.completed_run");

  assert.equal((await client.runStatus(waiting[0])).status, "awaiting");
  const run = await client.runResumeSync(waiting[0], NOTHING);
  assert.deepEqual([run.status, run.output.map(text)], ["completed", ["empty"]]);
  const resumed = await all(client.runResumeStream(waiting[1], NOTHING));
  assert.equal(resumed.at(-1).type, "run.completed");
  console.log("ok restart.waiting_runs");

  const next = await client.withSession((within) => within.runSync("history_echo", HELLO), session);
  assert.equal(next.output.length, 3);
  console.log("ok restart.session");
}

module.exports = { begin, finish };
