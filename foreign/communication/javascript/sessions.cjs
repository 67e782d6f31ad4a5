"use strict";
// Sessions on one server, as far as this client supports them.

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const { Message } = require("acp-sdk");
const { Suite } = require("../../shared/check.cjs");
const { all, text } = require("./target.cjs");

const suite = new Suite("sessions");
const HELLO = [Message.parse({ parts: [{ content: "Hello!" }] })];

suite.check("history_grows", async (target) => {
  await target.client().withSession(async (session) => {
    for (const count of [1, 3, 7]) {
      const run = await session.runSync("history_echo", HELLO);
      assert.deepEqual(run.output.map(text), Array(count).fill("Hello!"));
      assert.equal(run.session_id, session.sessionId);
    }
  });
});

suite.check("one_session_in_two_clients", async (target) => {
  const id = randomUUID();
  for (const count of [1, 3]) {
    await target.client().withSession(async (session) => {
      const events = await all(session.runStream("history_echo", HELLO));
      assert.equal(events.at(-1).run.output.length, count);
    }, id);
  }
});

suite.check("session_id_is_known_to_agents", async (target) => {
  const client = target.client();
  const lone = await client.runSync("sessioner", HELLO);
  assert.equal(text(lone.output[0]), lone.session_id);
  await client.withSession(async (session) => {
    const run = await session.runSync("sessioner", HELLO);
    assert.equal(text(run.output[0]), session.sessionId);
  });
});

suite.check("history_has_addresses", async (target) => {
  await target.client().withSession(async (session) => {
    await session.runSync("echo", HELLO);
    const answer = await target.send("GET", `/sessions/${session.sessionId}`);
    assert.equal(answer.status, 200);
    const descriptor = await answer.json();
    assert.equal(descriptor.id, session.sessionId);
    assert.equal(descriptor.history.length, 2);
    const base = target.url.replace(/\/$/, "");
    const roles = [];
    for (const address of descriptor.history) {
      assert.ok(address.startsWith(`${base}/resources/`), address);
      const resource = await target.fetch(address);
      assert.equal(resource.headers.get("content-type")?.split(";")[0], "application/json");
      roles.push(Message.parse(await resource.json()).role);
    }
    assert.deepEqual(roles, ["user", "agent/echo"]);
  });
});

module.exports = { suite };
