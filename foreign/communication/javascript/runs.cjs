"use strict";
// Every operation on runs, through the official client.

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const { Message, MessageAwaitResume, isTerminalRunStatus, throwForRunStatus } = require("acp-sdk");
const { Suite } = require("../../shared/check.cjs");
const { all, refused, settled, text } = require("./target.cjs");

const suite = new Suite("runs");
const HELLO = [Message.parse({ parts: [{ content: "Hello!" }] })];
const NOTHING = MessageAwaitResume.parse({ type: "message", message: { parts: [] } });
// Milliseconds after which a cancelled run must have ended.
const CANCEL_LIMIT = 10_000;

suite.check("sync", async (target) => {
  const run = await target.client().runSync("echo", HELLO);
  assert.equal(run.status, "completed");
  assert.equal(run.output.length, 1);
  assert.equal(run.output[0].role, "agent/echo");
  assert.equal(run.output[0].parts[0].content, "Hello!");
  assert.equal(run.output[0].parts[0].content_type, "text/plain");
  assert.ok(run.session_id && run.finished_at);
  throwForRunStatus(run);
});

suite.check("forms_of_input", async (target) => {
  const client = target.client();
  for (const [given, wanted] of [
    ["one", ["one"]],
    [{ content: "part" }, ["part"]],
    [[{ content: "one" }, { content: "two" }], ["onetwo"]],
    [["one", "two"], ["onetwo"]],
    [[], []],
  ]) {
    const run = await client.runSync("echo", given);
    assert.deepEqual(run.output.map(text), wanted);
  }
});

suite.check("every_kind_of_part", async (target) => {
  const parts = [
    { content: "caf\u00e9 \u{1F600} \u0085\u2028\u2029 \"quoted\"\n\ttext" },
    { content: '{"a": [1, 2.50, "x"]}', content_type: "application/json" },
    { content: "aGVsbG8=", content_type: "image/png", content_encoding: "base64" },
    { content_url: "https://example.org/picture.png?size=1#top", content_type: "image/png" },
    { name: "notes.txt", content: "an artifact", content_type: "text/plain" },
    { content: "cited", metadata: { kind: "citation", start_index: 0, end_index: 4, title: "An example" } },
    { metadata: { kind: "trajectory", message: "Thinking", tool_name: "search", tool_input: { q: 1 } } },
  ];
  const seen = (part) => JSON.parse(JSON.stringify(part, (_, value) => value ?? undefined));
  const wanted = parts.map((part) => ({
    content_type: "text/plain",
    content_encoding: "plain",
    ...part,
  }));
  const client = target.client();
  const run = await client.runSync("echo", [{ parts }]);
  assert.deepEqual(run.output[0].parts.map(seen), wanted);
  const events = await all(client.runStream("echo", [{ parts }]));
  const streamed = events.filter((event) => event.type === "message.part");
  assert.deepEqual(streamed.map((event) => seen(event.part)), wanted);
  assert.deepEqual(events.at(-1).run.output[0].parts.map(seen), wanted);
});

suite.check("async_and_status", async (target) => {
  const client = target.client();
  let run = await client.runAsync("echo", HELLO);
  assert.deepEqual([run.status, run.output], ["created", []]);
  run = await settled(client, run, "completed");
  assert.deepEqual(run.output.map(text), ["Hello!"]);
});

suite.check("stream", async (target) => {
  const events = await all(target.client().runStream("echo", HELLO));
  assert.deepEqual(
    events.map((event) => event.type),
    [
      "run.created",
      "run.in-progress",
      "message.created",
      "message.part",
      "message.completed",
      "run.completed",
    ],
  );
  assert.equal(events[3].part.content, "Hello!");
  assert.equal(events[5].run.status, "completed");
});

suite.check("messages_have_ids_that_the_client_ignores", async (target) => {
  const run = await target.client().runSync("echo", HELLO);
  const raw = await (await target.send("GET", `/runs/${run.run_id}`)).json();
  assert.match(raw.output[0].x_trilogue.message_id, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  // The official client drops these members when it parses.
  assert.deepEqual(await target.client().runStatus(run.run_id), run);
  assert.deepEqual(Message.parse(raw.output[0]), run.output[0]);
  assert.equal("x_trilogue" in run.output[0], false);
});

suite.check("events_are_the_stream", async (target) => {
  const client = target.client();
  for (const agent of ["echo", "artifact_producer", "mime_types", "failer", "raiser", "awaiter"]) {
    const streamed = await all(client.runStream(agent, HELLO));
    assert.deepEqual(await client.runEvents(streamed[0].run.run_id), streamed, agent);
  }
});

suite.check("a_stream_that_is_aborted_ends_nothing", async (target) => {
  const client = target.client();
  const controller = new AbortController();
  let id;
  const reading = (async () => {
    for await (const event of client.runStream("slow_echo", HELLO, controller.signal)) {
      if (event.type === "run.created") {
        id = event.run.run_id;
        controller.abort();
      }
    }
  })();
  await assert.rejects(reading, { name: "AbortError" });
  let run = await client.runStatus(id);
  assert.equal(isTerminalRunStatus(run.status), false, run.status);
  run = await settled(client, run, "completed");
  assert.deepEqual(run.output.map(text), ["Hello!"]);
});

suite.check("failures", async (target) => {
  const client = target.client();
  for (const agent of ["failer", "raiser"]) {
    const run = await client.runSync(agent, HELLO);
    assert.equal(run.status, "failed");
    assert.equal(run.error?.code, "invalid_input");
    assert.throws(() => throwForRunStatus(run), { name: "ACPError", code: "invalid_input" });
    const events = await all(client.runStream(agent, HELLO));
    assert.equal(events.at(-1).type, "run.failed");
    assert.equal(events.at(-1).run.error.code, "invalid_input");
  }
});

suite.check("cancel", async (target) => {
  const client = target.client();
  for (const agent of ["awaiter", "slow_echo"]) {
    let run = await client.runAsync(agent, Array(30).fill(HELLO[0]));
    const begun = performance.now();
    run = await client.runCancel(run.run_id);
    assert.equal(run.status, "cancelling");
    run = await settled(client, run, "cancelled");
    const elapsed = performance.now() - begun;
    assert.ok(elapsed <= CANCEL_LIMIT, `the cancelled run took ${elapsed} ms to end`);
    await refused(client.runCancel(run.run_id), "server_error");
  }
});

suite.check("cancel_in_a_stream", async (target) => {
  const client = target.client();
  let last;
  for await (const event of client.runStream("slow_echo", Array(30).fill(HELLO[0]))) {
    last = event;
    if (event.type === "run.created") {
      assert.equal((await client.runCancel(event.run.run_id)).status, "cancelling");
    }
  }
  assert.equal(last.type, "run.cancelled");
});

async function waiting(client) {
  const run = await client.runSync("awaiter", HELLO);
  assert.equal(run.status, "awaiting");
  assert.equal(run.await_request.type, "message");
  assert.deepEqual(run.await_request.message.parts, []);
  return run;
}

function answered(run) {
  assert.equal(run.status, "completed");
  assert.deepEqual(run.output.map(text), ["empty"]);
  assert.equal(run.await_request ?? null, null);
}

suite.check("resume_sync", async (target) => {
  const client = target.client();
  const run = await waiting(client);
  answered(await client.runResumeSync(run.run_id, NOTHING));
  await refused(client.runResumeSync(run.run_id, NOTHING), "server_error");
});

suite.check("resume_async", async (target) => {
  const client = target.client();
  let run = await waiting(client);
  run = await client.runResumeAsync(run.run_id, NOTHING);
  assert.equal(run.status, "in-progress");
  answered(await settled(client, run, "completed"));
});

suite.check("resume_stream", async (target) => {
  const client = target.client();
  const begun = await all(client.runStream("awaiter", HELLO));
  assert.equal(begun.at(-1).type, "run.awaiting");
  const id = begun.at(-1).run.run_id;
  const ended = await all(client.runResumeStream(id, NOTHING));
  assert.equal(ended[0].type, "run.in-progress");
  assert.equal(ended.at(-1).type, "run.completed");
  answered(ended.at(-1).run);
  assert.deepEqual(await client.runEvents(id), [...begun, ...ended]);
});

suite.check("unknown_run", async (target) => {
  const client = target.client();
  const nobody = randomUUID();
  await refused(client.runStatus(nobody), "not_found");
  await refused(client.runEvents(nobody), "not_found");
  await refused(client.runCancel(nobody), "not_found");
  await refused(client.runResumeSync(nobody, NOTHING), "not_found");
  await refused(all(client.runResumeStream(nobody, NOTHING)), "not_found");
  await refused(client.runStatus("no-uuid"), "invalid_input");
});

suite.check("errors_of_bad_bodies", async (target) => {
  for (const [body, status, code] of [
    ["{", 422, "invalid_input"],
    [{ agent_name: "echo" }, 422, "invalid_input"],
    [{ agent_name: "echo", input: [{ parts: [{ content: "a", content_url: "data:,b" }] }] }, 422, "invalid_input"],
    [{ agent_name: "echo", input: [{ role: "system", parts: [] }] }, 422, "invalid_input"],
    [{ agent_name: "nobody", input: [] }, 404, "not_found"],
  ]) {
    const answer = await target.send("POST", "/runs", body);
    const error = await answer.json();
    assert.deepEqual([answer.status, error.code], [status, code], JSON.stringify(error));
    assert.ok(error.message);
  }
  const answer = await target.send("DELETE", "/agents");
  assert.deepEqual([answer.status, (await answer.json()).code], [405, "server_error"]);
});

module.exports = { suite };
