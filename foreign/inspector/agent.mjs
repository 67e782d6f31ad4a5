// An agent of the Agent Client Protocol on stdio, for the tests of the inspector: it does what the prompt says.
//
//     say:TEXT      says it              many:N     N thoughts
//     slow:N        N words, 30 ms apart code       a plan, tools, a difference, a permission
//     warn:TEXT     writes it to standard error, followed by its variable AGENT_KEY
//     muse          two thoughts with separate ids, in pieces
//     wide          texts without a space in every place that an agent can fill, and asks
//     aside         says something that is not for the user
//     long          asks for a command whose middle, the text HIDDEN, is far from its ends
//     hostile       puts every text of hostile.mjs into every field that an agent has

import { createInterface } from "node:readline";
import { hostileTexts } from "./hostile.mjs";

const HOSTILE = hostileTexts(process.argv[2]);
const MODES = {
  currentModeId: "ask",
  availableModes: [
    { id: "ask", name: "Ask", description: "Asks before it changes anything" },
    { id: "act", name: "Act", description: "Changes files without a question" },
  ],
};
const COMMANDS = [
  { name: "review", description: "Reads the last change" },
  { name: "report", description: "Says what was done" },
  { name: "test", description: "Runs the tests" },
];
const ASKS = new Map();
const CANCELLED = new Set();
let sessions = 0;
let requests = 0;

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

function ask(method, params) {
  const id = `ask-${++requests}`;
  send({ id, method, params });
  return new Promise((done) => ASKS.set(id, done));
}

/** The context of a turn: its session, and functions to send updates. */
class Turn {
  constructor(sessionId) {
    this.sessionId = sessionId;
  }
  update(update) {
    send({ method: "session/update", params: { sessionId: this.sessionId, update } });
  }
  say(text) {
    this.update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
  }
  think(text, messageId) {
    this.update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text }, ...(messageId && { messageId }) });
  }
  plan(...entries) {
    this.update({ sessionUpdate: "plan", entries: entries.map(([content, status]) => ({ content, status, priority: "medium" })) });
  }
  async permission(toolCall, options) {
    const params = { sessionId: this.sessionId, toolCall, options };
    return (await ask("session/request_permission", params))?.outcome;
  }
}

const OPTIONS = [
  { optionId: "once", name: "Allow once", kind: "allow_once" },
  { optionId: "always", name: "Always allow", kind: "allow_always" },
  { optionId: "no", name: "Reject", kind: "reject_once" },
];

async function code(turn) {
  turn.plan(["Read the file", "in_progress"], ["Change the greeting", "pending"], ["Run the tests", "pending"]);
  turn.think("The greeting is in one place.");
  turn.update({ sessionUpdate: "tool_call", toolCallId: "read", title: "Read greet.js", kind: "read", status: "pending", locations: [{ path: "/project/greet.js", line: 1 }], rawInput: { path: "/project/greet.js" } });
  turn.update({ sessionUpdate: "tool_call_update", toolCallId: "read", status: "completed", content: [{ type: "content", content: { type: "text", text: "export const greet = () => \"Hello\";" } }], rawOutput: { lines: 1 } });
  turn.plan(["Read the file", "completed"], ["Change the greeting", "in_progress"], ["Run the tests", "pending"]);
  const change = { type: "diff", path: "/project/greet.js", oldText: "// Greets.\nexport const greet = () => \"Hello\";\n", newText: "// Greets.\nexport const greet = (name) => `Hello, ${name}`;\n" };
  turn.update({ sessionUpdate: "tool_call", toolCallId: "edit", title: "Change greet.js", kind: "edit", status: "pending", content: [change], rawInput: { path: "/project/greet.js" } });
  const outcome = await turn.permission({ toolCallId: "edit", title: "Change greet.js", kind: "edit", content: [change] }, OPTIONS);
  const allowed = outcome?.outcome === "selected" && outcome.optionId !== "no";
  turn.update({ sessionUpdate: "tool_call_update", toolCallId: "edit", status: allowed ? "completed" : "failed" });
  turn.update({ sessionUpdate: "tool_call", toolCallId: "test", title: "npm test", kind: "execute", status: "in_progress", rawInput: { command: "npm", args: ["test"] } });
  await pause(20);
  turn.update({ sessionUpdate: "tool_call_update", toolCallId: "test", status: "completed", content: [{ type: "content", content: { type: "text", text: "\u001b[32m✓\u001b[0m greets\n1 passed\n" } }], rawOutput: { exit_code: 0 } });
  turn.plan(["Read the file", "completed"], ["Change the greeting", allowed ? "completed" : "pending"], ["Run the tests", "completed"]);
  turn.say(allowed ? "Done: `greet` takes a **name** now.\n\n```js\ngreet(\"Ada\");\n```\n" : "I left the file as it was.");
}

async function wide(turn) {
  const word = "unbroken".repeat(60);
  const sentence = "a long sentence of many words ".repeat(12);
  turn.update({ sessionUpdate: "session_info_update", title: `${sentence}${word}` });
  turn.plan([word, "in_progress"], [sentence, "pending"]);
  turn.think(`${word} ${sentence}`);
  turn.say([`# ${word}`, `${sentence}`, `[${word}](https://example.com/${word})`, `| ${word} | ${sentence} |\n|---|---|\n| ${word} | ${word} |`, `\`\`\`${word}\n${word} ${sentence}\n\`\`\``, `> ${word}`, `- ${word}`].join("\n\n"));
  const change = { type: "diff", path: `/project/${word}/${word}.js`, oldText: `${sentence}\n`, newText: `${word}\n` };
  turn.update({ sessionUpdate: "tool_call", toolCallId: "wide", title: `${sentence}${word}`, kind: "edit", status: "in_progress", rawInput: { [word]: sentence }, content: [change] });
  turn.update({ sessionUpdate: "agent_message_chunk", content: { type: "resource_link", uri: `file:///${word}`, name: word, title: sentence, description: word } });
  await turn.permission({ toolCallId: "wide", title: `${sentence}${word}`, kind: "execute", rawInput: { command: `${word} ${sentence}` }, content: [change] }, [{ optionId: "once", name: sentence, kind: "allow_once" }, { optionId: "no", name: word, kind: "reject_once" }]);
}

async function long(turn) {
  const padding = "echo nothing to see; ".repeat(500);
  const command = `echo BEGIN; ${padding}rm -rf HIDDEN\u202e; ${padding}echo END`;
  const outcome = await turn.permission({ toolCallId: "long", title: "List files", kind: "execute", rawInput: { command } }, OPTIONS);
  turn.say(`chosen: ${outcome?.optionId}`);
}

async function hostile(turn) {
  for (const [place, text] of HOSTILE.entries()) {
    turn.say(`${text}\n\n`);
    turn.think(text);
    turn.plan([text, "in_progress"]);
    turn.update({ sessionUpdate: "tool_call", toolCallId: `${place}${text}`, title: text, kind: "edit", status: "in_progress", rawInput: { [text]: text }, locations: [{ path: text }], content: [{ type: "diff", path: text, oldText: text, newText: `${text}${text}` }] });
    turn.update({ sessionUpdate: "tool_call_update", toolCallId: `${place}${text}`, status: "completed", rawOutput: { [text]: text }, content: [{ type: "content", content: { type: "text", text } }, { type: "content", content: { type: "resource_link", uri: text, name: text, title: text, description: text } }, { type: "content", content: { type: "resource", resource: { uri: text, mimeType: "text/html", text } } }] });
    turn.update({ sessionUpdate: "agent_message_chunk", content: { type: "resource_link", uri: text, name: text, title: text, description: text } });
    turn.update({ sessionUpdate: "agent_message_chunk", content: { type: "resource", resource: { uri: `file:///${place}.html`, mimeType: "text/html", text } } });
    turn.update({ sessionUpdate: "agent_message_chunk", content: { type: "image", mimeType: "image/svg+xml", data: Buffer.from(text).toString("base64") } });
    turn.update({ sessionUpdate: "session_info_update", title: text });
  }
  const options = HOSTILE.map((text, place) => ({ optionId: `${place}${text}`, name: text, kind: place ? "reject_once" : "allow_once" }));
  await turn.permission({ toolCallId: HOSTILE[0], title: HOSTILE.join(" "), kind: "execute", rawInput: { command: HOSTILE.join("\n") } }, options);
}

async function prompt({ sessionId, prompt: blocks }) {
  const turn = new Turn(sessionId);
  const text = blocks.map((block) => block.text ?? "").join("");
  const [, word, rest] = /^(\w+):?([^]*)$/.exec(text.trim()) ?? [];
  CANCELLED.delete(sessionId);
  if (word === "code") await code(turn);
  else if (word === "hostile") await hostile(turn);
  else if (word === "wide") await wide(turn);
  else if (word === "long") await long(turn);
  else if (word === "muse") {
    turn.think("One ", "one");
    turn.think("thought.", "one");
    turn.think("Another thought.", "two");
    turn.say("I have thought.");
  }
  else if (word === "aside") {
    turn.update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: "for the assistant", annotations: { audience: ["assistant"] } } });
    turn.say("for everybody");
  } else if (word === "warn") process.stderr.write(`${rest} ${process.env.AGENT_KEY}\n`);
  else if (word === "many") for (let n = 1; n <= Number(rest); n++) turn.think(`thought ${n}. `);
  else if (word === "slow") {
    for (let n = 1; n <= Number(rest) && !CANCELLED.has(sessionId); n++) {
      turn.say(`word${n} `);
      await pause(30);
    }
  } else if (word === "fail") throw new Error(rest || "it failed");
  else turn.say(word === "say" ? rest : `You said: ${text}`);
  return { stopReason: CANCELLED.has(sessionId) ? "cancelled" : "end_turn" };
}

const METHODS = {
  initialize: () => ({
    protocolVersion: 1,
    agentCapabilities: { loadSession: false, promptCapabilities: { image: true, audio: true, embeddedContext: true } },
    agentInfo: { name: "coder", title: "Coder", version: "1.0.0" },
    authMethods: [],
  }),
  "session/new": () => {
    const sessionId = `session-${++sessions}`;
    setTimeout(() => new Turn(sessionId).update({ sessionUpdate: "available_commands_update", availableCommands: COMMANDS }));
    return { sessionId, modes: MODES };
  },
  "session/set_mode": () => ({}),
  "session/prompt": prompt,
};

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.method === undefined) {
    ASKS.get(message.id)?.(message.result);
    ASKS.delete(message.id);
  } else if (message.method === "session/cancel") {
    CANCELLED.add(message.params.sessionId);
    for (const done of ASKS.values()) done(undefined);
  } else if (message.id !== undefined) {
    const method = METHODS[message.method];
    if (!method) send({ id: message.id, error: { code: -32601, message: "method not found" } });
    else {
      Promise.resolve(message.params)
        .then(method)
        .then((result) => send({ id: message.id, result }))
        .catch((error) => send({ id: message.id, error: { code: -32603, message: error.message } }));
    }
  }
}
