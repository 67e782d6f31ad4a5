// Checks that apply to every agent: sessions, turns, ids, replay.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { isUuid, refused, Suite } from "./expect.mjs";
import { Editor, messages, said } from "./editor.mjs";

export const suite = new Suite("session");

/** Whether the agent must do everything that Trilogue promises, not only what the protocol requires. */
const promises = (target) => target.isTrilogue;

suite.check("initialize", async (target) => {
  const editor = await target.open();
  assert.equal(editor.agent.protocolVersion, 1);
  assert.equal(editor.agent.agentCapabilities.loadSession, true);
  if (target.name) assert.equal(editor.agent.agentInfo.name, target.name);
});

suite.check("version_negotiated", async (target) => {
  const editor = new Editor(target);
  const answer = await editor.initialize(65535);
  assert.equal(answer.protocolVersion, 1);
  await editor.close();
}, promises);

suite.check("prompt", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  const { result, updates } = await editor.prompt(sessionId, target.prompt);
  assert.equal(result.stopReason, "end_turn");
  assert.ok(said(updates), "nothing was said");
  if (target.isTrilogue) {
    isUuid(sessionId, "the session's id");
    isUuid(result.userMessageId, "the id that the agent gave the prompt");
    for (const { id } of messages(updates)) isUuid(id, "the id of a message");
    assert.ok(!messages(updates).some(({ id }) => id === result.userMessageId), "one id of two messages");
  }
});

suite.check("prompt_with_an_id", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  const id = randomUUID();
  const { result } = await editor.prompt(sessionId, target.prompt, id);
  assert.equal(result.stopReason, "end_turn");
  if (!target.hasIds) return;
  assert.equal(result.userMessageId, id);
  if (!target.isTrilogue) return;
  const again = await editor.prompt(sessionId, target.prompt, id);
  assert.equal(again.result.userMessageId, undefined, "a used id was recorded again");
  const opaque = "6BA7B810-9DAD-11D1-80B4-00C04FD430C8";
  assert.equal((await editor.prompt(sessionId, target.prompt, opaque)).result.userMessageId, opaque);
  for (const unfit of ["msg_1", ""]) {
    const { result } = await editor.prompt(sessionId, target.prompt, unfit);
    assert.equal(result.userMessageId, undefined, "an id that is no UUID was recorded");
  }
});

suite.check("two_prompts_in_a_row", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  const one = await editor.prompt(sessionId, target.prompt);
  const two = await editor.prompt(sessionId, target.prompt);
  for (const { result, updates } of [one, two]) {
    assert.equal(result.stopReason, "end_turn");
    assert.ok(said(updates), "nothing was said");
  }
  const ids = [one, two].flatMap(({ updates }) => messages(updates).map((message) => message.id));
  assert.equal(new Set(ids).size, ids.length, `ids of two turns: ${ids}`);
});

suite.check("prompts_of_two_sessions_at_once", async (target) => {
  const editor = await target.open();
  const ids = [];
  for (let n = 0; n < 2; n += 1) ids.push((await editor.newSession()).sessionId);
  const results = await Promise.all(ids.map((id) => editor.call("session/prompt", { sessionId: id, prompt: [{ type: "text", text: target.prompt }] })));
  for (const result of results) assert.equal(result.stopReason, "end_turn");
  for (const id of ids) assert.ok(said(editor.updates(id)), "a session said nothing");
});

suite.check("a_resource_link", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  const blocks = [
    { type: "resource_link", uri: "file:///a.txt", name: "a.txt", size: 3 },
    { type: "text", text: target.prompt },
  ];
  const { result } = await editor.prompt(sessionId, blocks);
  assert.equal(result.stopReason, "end_turn");
});

suite.check("load_replays", async (target) => {
  const first = await target.open();
  const { sessionId } = await first.newSession();
  const id = randomUUID();
  const one = await first.prompt(sessionId, target.prompt, id);
  await first.prompt(sessionId, target.prompt);
  await first.close();

  const second = await target.open();
  await second.call("session/load", { sessionId, cwd: target.cwd, mcpServers: [] });
  const replayed = second.updates(sessionId);
  const prompts = messages(replayed, "user_message_chunk");
  assert.equal(prompts.length, 2, `prompts in the replay: ${JSON.stringify(prompts)}`);
  assert.equal(prompts[0].text, target.prompt);
  if (target.hasIds) assert.equal(prompts[0].id, id);
  const texts = messages(replayed).map((message) => message.text);
  const live = messages(one.updates);
  assert.deepEqual(texts.slice(0, live.length), live.map((message) => message.text));
  const ids = messages(replayed).map((message) => message.id);
  assert.deepEqual(ids.slice(0, live.length), live.map((message) => message.id), "ids of the replay");
  const third = await second.prompt(sessionId, target.prompt);
  assert.equal(third.result.stopReason, "end_turn");
});

suite.check("resume_does_not_replay", async (target) => {
  const first = await target.open();
  assert.ok(first.agent.agentCapabilities.sessionCapabilities?.resume, "sessions cannot be resumed");
  const { sessionId } = await first.newSession();
  await first.prompt(sessionId, target.prompt);
  await first.close();
  const second = await target.open();
  await second.call("session/resume", { sessionId, cwd: target.cwd, mcpServers: [] });
  assert.deepEqual(messages(second.updates(sessionId)), []);
  const { result } = await second.prompt(sessionId, target.prompt);
  assert.equal(result.stopReason, "end_turn");
}, promises);

suite.check("list_close_delete", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  await editor.prompt(sessionId, target.prompt);
  const listed = async () => {
    const all = [];
    let cursor;
    do {
      const page = await editor.call("session/list", { cwd: target.cwd, ...(cursor ? { cursor } : {}) });
      all.push(...page.sessions);
      cursor = page.nextCursor;
    } while (cursor);
    return all.find((each) => each.sessionId === sessionId);
  };
  const found = await listed();
  assert.equal(found?.cwd, target.cwd, "the session in the list");
  if (!target.isTrilogue) return;
  assert.ok(!Number.isNaN(Date.parse(found.updatedAt)), `updatedAt is ${found.updatedAt}`);
  await editor.call("session/close", { sessionId });
  assert.ok(await listed(), "a closed session is gone from the list");
  await editor.call("session/delete", { sessionId });
  assert.equal(await listed(), undefined, "a deleted session is in the list");
  await editor.call("session/delete", { sessionId });
  const error = await refused(editor.call("session/load", { sessionId, cwd: target.cwd, mcpServers: [] }), -32002);
  assert.equal(error.data.sessionId, sessionId);
});

suite.check("what_is_unknown", async (target) => {
  const editor = await target.open();
  const sessionId = randomUUID();
  const prompt = [{ type: "text", text: target.prompt }];
  await refused(editor.call("session/prompt", { sessionId, prompt }), -32002);
  await refused(editor.call("session/load", { sessionId, cwd: target.cwd, mcpServers: [] }), -32002);
  if (!target.isTrilogue) return;
  await refused(editor.call("_trilogue.test/none", {}), -32601);
  await editor.peer.tell("session/cancel", { sessionId });
  await refused(editor.call("session/new", { cwd: "relative", mcpServers: [] }), -32602);
  const made = await editor.newSession();
  await refused(editor.call("session/prompt", { sessionId: made.sessionId, prompt, messageId: 7 }), -32602);
  if (target.isNative) await refused(editor.call("session/prompt", { sessionId: made.sessionId, prompt: [{ type: "hologram" }] }), -32602);
  const { result } = await editor.prompt(made.sessionId, target.prompt);
  assert.equal(result.stopReason, "end_turn");
});

suite.check("cancel_when_idle", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  await editor.peer.tell("session/cancel", { sessionId });
  const { result } = await editor.prompt(sessionId, target.prompt);
  assert.equal(result.stopReason, "end_turn");
});
