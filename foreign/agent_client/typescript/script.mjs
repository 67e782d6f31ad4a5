// Checks of an agent that follows its prompts: updates of every kind, questions, files, terminals, cancellations.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { refused, Suite } from "./expect.mjs";
import { choice, messages, said } from "./editor.mjs";

export const suite = new Suite("script");

/** A turn in a new session; with `replays`, loading the session replays the same. */
async function turn(target, prompt, { replays = target.isTrilogue, ...more } = {}) {
  const editor = await target.open();
  Object.assign(editor, more);
  const { sessionId } = await editor.newSession();
  const done = await editor.prompt(sessionId, prompt);
  if (replays) {
    const second = await target.open();
    await second.call("session/load", { sessionId, cwd: target.cwd, mcpServers: [] });
    const told = (updates) => updates.filter((each) => each.sessionUpdate !== "user_message_chunk");
    assert.deepEqual(told(second.updates(sessionId)), told(editor.updates(sessionId)), "the replay");
  }
  return { ...done, editor, sessionId };
}

/** Whether the agent knows every word of our example agents. */
const knowsAll = (target) => target.hasVocabulary;

const kinds = (updates) => updates.map((update) => update.sessionUpdate);

suite.check("say", async (target) => {
  const { result, updates } = await turn(target, "say:hello world");
  assert.equal(result.stopReason, "end_turn");
  const all = messages(updates);
  assert.equal(all.length, 1, JSON.stringify(updates));
  assert.equal(all[0].text, "hello world");
  assert.ok(all[0].id, "the message has no id");
});

suite.check("two_messages_in_a_row", async (target) => {
  const { updates } = await turn(target, "two");
  const all = messages(updates);
  assert.equal(all.length, 2, JSON.stringify(updates));
  assert.notEqual(all[0].id, all[1].id);
});

suite.check("thought", async (target) => {
  const { updates } = await turn(target, "think:hm");
  const [thought] = messages(updates, "agent_thought_chunk");
  assert.equal(thought?.text, "hm", JSON.stringify(updates));
  assert.ok(!messages(updates).some((message) => message.id === thought.id), "a thought has a message's id");
});

suite.check("tool_call", async (target) => {
  const { updates } = await turn(target, "tool");
  const call = updates.find((update) => update.sessionUpdate === "tool_call");
  assert.ok(call?.title, JSON.stringify(updates));
  const last = updates.findLast((update) => update.sessionUpdate === "tool_call_update");
  assert.equal(last.toolCallId, call.toolCallId);
  assert.equal(last.status, "completed");
  const content = updates.filter((update) => update.toolCallId === call.toolCallId).flatMap((update) => update.content ?? []);
  assert.ok(content.length > 0, "the call has no content");
  const diff = content.find((item) => item.type === "diff");
  if (target.hasVocabulary) assert.ok(diff?.path && typeof diff.newText === "string", JSON.stringify(content));
});

suite.check("permission_given", async (target) => {
  const { result, updates, editor } = await turn(target, "permission");
  assert.equal(editor.asked.length, 1, "how often it asked");
  assert.equal(result.stopReason, "end_turn");
  assert.ok(kinds(updates).includes("tool_call"), kinds(updates).join());
  assert.equal(editor.asked[0].toolCall.toolCallId, updates.find((update) => update.sessionUpdate === "tool_call").toolCallId);
  assert.match(said(updates), /once/);
});

suite.check("permission_refused", async (target) => {
  const choose = (params) => choice(params, "reject_once", "reject_always");
  const { result, updates } = await turn(target, "permission", { choose });
  assert.equal(result.stopReason, "end_turn");
  assert.doesNotMatch(said(updates), /once|always/);
});

suite.check("cancel_while_it_asks", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  let settle;
  const later = new Promise((resolve) => (settle = resolve));
  editor.choose = async () => {
    await editor.peer.tell("session/cancel", { sessionId });
    return later;
  };
  setTimeout(() => settle({ outcome: "cancelled" }), 300);
  const { result } = await editor.prompt(sessionId, "permission");
  assert.equal(result.stopReason, "cancelled");
  const { result: next } = await editor.prompt(sessionId, "say:still here");
  assert.equal(next.stopReason, "end_turn");
});

suite.check("elicitation", async (target) => {
  const { updates, editor } = await turn(target, "ask-form");
  assert.equal(editor.asked.length, 1, JSON.stringify(updates));
  assert.equal(editor.asked[0].mode, "form");
  assert.match(said(updates), /Ada/);
  const declined = await turn(target, "ask-form", { fill: () => ({ action: "decline" }) });
  assert.doesNotMatch(said(declined.updates), /Ada/);
});

suite.check("files_of_the_editor", async (target) => {
  const path = join(target.cwd, `notes-${process.pid}.txt`);
  await writeFile(path, "from the editor");
  const { updates } = await turn(target, `read:${path}`);
  assert.match(said(updates), /from the editor/);
  const written = await turn(target, `write:${path}:from the agent`);
  assert.equal(written.result.stopReason, "end_turn");
  assert.equal(await readFile(path, "utf8"), "from the agent");
});

suite.check("a_terminal_of_the_editor", async (target) => {
  const { updates, editor } = await turn(target, "term:echo out; exit 3");
  assert.match(said(updates), /out/);
  if (target.hasVocabulary) assert.match(said(updates), /exit 3/);
  assert.equal(editor.terminals.size, 0, "terminals that were not released");
});

suite.check("slow_and_cancelled", async (target) => {
  const editor = await target.open();
  const { sessionId } = await editor.newSession();
  const turn = editor.prompt(sessionId, target.hasVocabulary ? "slow" : "say:begun\nslow");
  turn.catch(() => {});
  await editor.saw((each) => each.params?.update?.sessionUpdate === "agent_message_chunk", "a chunk");
  await editor.peer.tell("session/cancel", { sessionId });
  const { result } = await turn;
  assert.equal(result.stopReason, "cancelled");
  const next = await editor.prompt(sessionId, "say:still here");
  assert.equal(said(next.updates), "still here");
});

suite.check("every_form_of_block", async (target) => {
  const { updates } = await turn(target, "blocks");
  const all = updates.filter((update) => update.sessionUpdate === "agent_message_chunk").map((update) => update.content);
  const types = new Set(all.map((block) => (block.type === "resource" ? (block.resource.text === undefined ? "blob" : "embedded") : block.type)));
  assert.deepEqual([...types].sort(), ["audio", "blob", "embedded", "image", "resource_link", "text"]);
  const noted = all.find((block) => block.annotations);
  assert.ok(noted, "no block is annotated");
});

suite.check("blocks_of_a_prompt", async (target) => {
  const { updates } = await turn(target, [
    { type: "text", text: "context", annotations: { audience: ["assistant"] } },
    { type: "image", data: "iVBORw0KGgo=", mimeType: "image/png" },
    { type: "audio", data: "UklGRg==", mimeType: "audio/wav" },
    { type: "resource_link", uri: "file:///a.txt", name: "a.txt" },
    { type: "resource", resource: { uri: "file:///b.txt", text: "b", mimeType: "text/plain" } },
    { type: "resource", resource: { uri: "file:///c.bin", blob: "AAEC" } },
    { type: "text", text: "got" },
  ]);
  assert.equal(said(updates), "got text image audio resource_link resource resource text");
}, knowsAll);

suite.check("plans_commands_title_usage", async (target) => {
  const { updates } = await turn(target, "state");
  for (const kind of ["plan", "available_commands_update", "session_info_update", "usage_update"]) {
    assert.ok(kinds(updates).includes(kind), `${kind} in ${kinds(updates)}`);
  }
}, knowsAll);

suite.check("modes_and_options", async (target) => {
  const editor = await target.open();
  const { sessionId, modes, configOptions } = await editor.newSession();
  assert.equal(modes.currentModeId, "ask");
  assert.equal(configOptions[0].currentValue, "small");
  await editor.call("session/set_mode", { sessionId, modeId: "code" });
  await editor.saw((each) => each.params?.update?.currentModeId === "code", "current_mode_update");
  await refused(editor.call("session/set_mode", { sessionId, modeId: "none" }), -32602);
  const set = await editor.call("session/set_config_option", { sessionId, configId: "model", value: "large" });
  assert.equal(set.configOptions[0].currentValue, "large");
  const { result } = await editor.prompt(sessionId, "say:in code");
  assert.equal(result.stopReason, "end_turn");
}, knowsAll);
