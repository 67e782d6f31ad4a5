"use strict";
// Discovery, and the answers of every agent of the conformance program.

const assert = require("node:assert/strict");
const { AgentManifest, Message } = require("acp-sdk");
const { Suite } = require("../../shared/check.cjs");
const { all, refused } = require("./target.cjs");

const suite = new Suite("agents");
const HELLO = [Message.parse({ parts: [{ content: "Hello!" }] })];
const NAMES = [
  "artifact_producer",
  "awaiter",
  "base64_encoding",
  "counter",
  "echo",
  "failer",
  "history_echo",
  "mime_types",
  "org-agntcy-echo",
  "org-agntcy-mock",
  "raiser",
  "sessioner",
  "slow_echo",
  "words",
];
const PNG = Buffer.from("89504e470d0a1a0a", "hex");

function isPng(part) {
  assert.deepEqual([part.content_type, part.content_encoding], ["image/png", "base64"]);
  assert.deepEqual(Buffer.from(part.content, "base64").subarray(0, PNG.length), PNG);
}

suite.check("ping", async (target) => {
  assert.equal(await target.client().ping(), undefined);
});

suite.check("list_of_agents", async (target) => {
  const agents = await target.client().agents();
  assert.deepEqual(agents.map((agent) => agent.name).sort(), NAMES);
  for (const agent of agents) {
    assert.ok(AgentManifest.safeParse(agent).success);
    assert.equal(typeof agent.description, "string");
  }
});

suite.check("manifest_of_each_agent", async (target) => {
  for (const name of NAMES) {
    assert.equal((await target.client().agent(name)).name, name);
  }
});

suite.check("content_types_of_a_manifest", async (target) => {
  const manifest = await target.client().agent("mime_types");
  assert.deepEqual(manifest.input_content_types, ["text/plain", "application/json"]);
  assert.deepEqual(manifest.output_content_types, [
    "text/html",
    "application/json",
    "application/javascript",
    "text/css",
  ]);
});

suite.check("unknown_agent", async (target) => {
  const client = target.client();
  await refused(client.agent("nobody"), "not_found");
  await refused(client.runSync("nobody", HELLO), "not_found");
  await refused(client.runAsync("nobody", HELLO), "not_found");
  await refused(all(client.runStream("nobody", HELLO)), "not_found");
});

suite.check("mime_types", async (target) => {
  const run = await target.client().runSync("mime_types", HELLO);
  assert.equal(run.status, "completed");
  assert.equal(run.output.length, 1);
  assert.deepEqual(
    run.output[0].parts.map((part) => [part.content_type, part.content]),
    [
      ["text/html", "<h1>HTML Content</h1>"],
      ["application/json", '{"key": "value"}'],
      ["application/javascript", "console.log('Hello');"],
      ["text/css", "body { color: red; }"],
    ],
  );
});

suite.check("base64_encoding", async (target) => {
  const run = await target.client().runSync("base64_encoding", HELLO);
  assert.equal(run.output.length, 1);
  const [image, plain] = run.output[0].parts;
  isPng(image);
  assert.deepEqual([plain.content_type, plain.content], ["text/plain", "This is plain text"]);
});

suite.check("artifacts", async (target) => {
  const client = target.client();
  const events = await all(client.runStream("artifact_producer", HELLO));
  const run = events.at(-1).run;
  assert.equal(run.status, "completed");
  assert.equal(run.output.length, 1);
  const parts = run.output[0].parts;
  assert.deepEqual(
    parts.map((part) => part.name ?? null),
    [null, "text-result.txt", "data.json", "image.png"],
  );
  assert.equal(parts[0].content, "Processing with artifacts");
  assert.equal(parts[1].content, "This is a text artifact result");
  assert.equal(parts[2].content, '{"results": [1, 2, 3], "status": "complete"}');
  isPng(parts[3]);
  const streamed = events.filter((event) => event.type === "message.part");
  assert.deepEqual(streamed.map((event) => event.part), parts);
});

module.exports = { suite };
