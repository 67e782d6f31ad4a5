// Authentication, an agent that asks before it acts, and two editors on one session.

import assert from "node:assert/strict";
import { refused, Suite } from "./expect.mjs";
import { choice, messages, said } from "./editor.mjs";

export const auth = new Suite("auth");
export const asking = new Suite("asking");
export const attach = new Suite("attach");

auth.check("authenticate_first", async (target) => {
  const editor = await target.open();
  assert.deepEqual(editor.agent.authMethods.map((method) => method.id), ["key"]);
  await refused(editor.newSession(), -32000);
  await refused(editor.call("authenticate", { methodId: "none" }), -32602);
  await editor.call("authenticate", { methodId: "key" });
  const { sessionId } = await editor.newSession();
  const { updates } = await editor.prompt(sessionId, "say:in");
  assert.equal(said(updates), "in");
});

const LETTER = "Write to ada@example.com about the report: it is ready.";

asking.check("leave_is_given", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  const { result } = await editor.prompt(sessionId, LETTER);
  assert.equal(editor.asked.length, 1, "how often it asked");
  assert.equal(result.stopReason, "end_turn");
});

asking.check("leave_is_refused", async (target) => {
  const editor = await target.open();
  editor.choose = (params) => choice(params, "reject_once", "reject_always");
  editor.fill = () => ({ action: "decline" });
  const { sessionId } = await editor.newSession();
  const { result } = await editor.prompt(sessionId, LETTER);
  assert.equal(editor.asked.length, 1, "how often it asked");
  assert.ok(["end_turn", "cancelled", "refusal"].includes(result.stopReason), result.stopReason);
});

asking.check("cancel_while_it_asks", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  const cancel = () => editor.peer.tell("session/cancel", { sessionId });
  editor.choose = async () => (await cancel(), { outcome: "cancelled" });
  editor.fill = async () => (await cancel(), { action: "cancel" });
  const { result } = await editor.prompt(sessionId, LETTER);
  assert.equal(result.stopReason, "cancelled");
});

asking.check("the_question_waits_for_the_next_editor", async (target) => {
  const first = await target.open();
  const { sessionId } = await first.newSession();
  first.choose = first.fill = () => new Promise(() => {});
  const open = first.prompt(sessionId, LETTER).catch(() => {});
  await first.saw((each) => each.method === "session/request_permission" || each.method === "elicitation/create", "the question");
  await first.kill();
  await open;
  const second = await target.open();
  await second.call("session/load", { sessionId, cwd: target.cwd, mcpServers: [] });
  await second.saw((each) => each.method === "session/request_permission" || each.method === "elicitation/create", "the question again");
});

attach.check("both_editors_see_the_same", async (target) => {
  const one = await target.open();
  const { sessionId } = await one.newSession();
  await one.prompt(sessionId, "say:before");
  const two = await target.open();
  await two.call("session/load", { sessionId, cwd: target.cwd, mcpServers: [] });
  const from = two.messages.length;
  const { updates, result } = await one.prompt(sessionId, "say:together");
  await two.saw(() => said(two.updates(sessionId, from)) === "together", "the text in the second editor");
  const seen = two.updates(sessionId, from);
  assert.deepEqual(messages(seen), messages(updates));
  const [prompt] = messages(seen, "user_message_chunk");
  assert.equal(prompt.text, "say:together");
  assert.equal(prompt.id, result.userMessageId);
});

attach.check("either_editor_answers", async (target) => {
  const one = await target.open();
  const { sessionId } = await one.newSession();
  one.choose = () => new Promise(() => {});
  const two = await target.open();
  await two.call("session/load", { sessionId, cwd: target.cwd, mcpServers: [] });
  const { result, updates } = await one.prompt(sessionId, "permission");
  assert.equal(result.stopReason, "end_turn");
  assert.match(said(updates), /once/);
  assert.equal(two.asked.length, 1, "how often the second was asked");
  const asked = one.messages.find((each) => each.method === "session/request_permission");
  const taken = await one.saw((each) => each.method === "$/cancel_request", "the question taken back");
  assert.equal(taken.params.requestId, asked.id);
});
