"use strict";
// The built-in agents of the server, through the official client with a token.

const assert = require("node:assert/strict");
const { Message, MessageAwaitResume } = require("acp-sdk");
const { Suite } = require("../../shared/check.cjs");
const { Target, all, refused, text } = require("./target.cjs");

const suite = new Suite("builtin");
const LETTER = "Write to ada@example.com about the report: it is ready.";

suite.check("agents", async (target) => {
  const names = (await target.client().agents()).map((agent) => agent.name);
  for (const name of ["echo", "mailcomposer", "researcher"]) assert.ok(names.includes(name), `${names}`);
});

suite.check("echo", async (target) => {
  const run = await target.client().runSync("echo", "Hello!");
  assert.deepEqual([run.status, run.output.map(text)], ["completed", ["Hello!"]]);
});

suite.check("researcher_as_a_stream", async (target) => {
  const client = target.client();
  const events = await all(client.runStream("researcher", "what is a log?"));
  assert.equal(events.at(-1).type, "run.completed");
  assert.deepEqual(await client.runEvents(events[0].run.run_id), events);
  const parts = events.at(-1).run.output.flatMap((message) => message.parts);
  const kinds = new Set(parts.map((part) => part.metadata?.kind).filter(Boolean));
  assert.deepEqual([...kinds].sort(), ["citation", "trajectory"]);
});

suite.check("mailcomposer_asks", async (target) => {
  const client = target.client();
  let run = await client.runSync("mailcomposer", LETTER);
  assert.equal(run.status, "awaiting");
  const answer = Message.parse({ parts: [{ content: '{"approved": true, "reason": "fine"}' }] });
  run = await client.runResumeSync(run.run_id, MessageAwaitResume.parse({ type: "message", message: answer }));
  assert.equal(run.status, "completed");
  assert.ok(run.output.length > 0);
});

suite.check("strangers_are_turned_away", async (target) => {
  await refused(new Target(target.url).client().runSync("echo", "Hello!"), "server_error");
});

module.exports = { suite };
