// An agent on the official SDK that does what its prompts say. `--auth` asks for authentication first,
// `--state FOLDER` keeps its sessions in files, `--listen` serves it over HTTP and WebSockets in place of standard streams.

import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { listen } from "./listen.mjs";
import { connectAgent, load, streamOf } from "./peer.mjs";

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const BLOCKS = [
  { type: "text", text: "noted", annotations: { audience: ["assistant"], priority: 0.5, lastModified: "2025-01-12T15:00:58Z" } },
  { type: "image", data: PIXEL, mimeType: "image/png", uri: "file:///pixel.png" },
  { type: "audio", data: "UklGRgAAAABXQVZF", mimeType: "audio/wav" },
  { type: "resource_link", uri: "file:///a.txt", name: "a.txt", mimeType: "text/plain", title: "A", description: "a file", size: 3 },
  { type: "resource", resource: { uri: "file:///b.txt", mimeType: "text/plain", text: "b" } },
  { type: "resource", resource: { uri: "file:///c.bin", mimeType: "application/octet-stream", blob: "AAEC" } },
];
const MODES = [{ id: "ask", name: "Ask" }, { id: "code", name: "Code" }];

const options = new Map();
const words = process.argv.slice(2);
while (words.length > 0) {
  const word = words.shift();
  options.set(word, ["--auth", "--seed", "--listen"].includes(word) ? true : words.shift());
}
const isSeed = options.has("--seed");
const state = options.get("--state");
const sdk = await load(options.get("--modules"), isSeed);
const sessions = new Map();
let isAuthenticated = !options.has("--auth");
let forms = false;

/** The session with this id, loaded from its file if it is not open. */
function session(id) {
  const file = state && join(state, `${id}.json`);
  if (!sessions.has(id) && file && existsSync(file)) {
    sessions.set(id, { ...JSON.parse(readFileSync(file, "utf8")), cancelled: false });
  }
  const found = sessions.get(id);
  if (!found) throw new sdk.RequestError(-32002, "Resource not found", { sessionId: id });
  return found;
}

function keep(id) {
  if (!state) return;
  mkdirSync(state, { recursive: true });
  const { cwd, mode, model, history } = sessions.get(id);
  writeFileSync(join(state, `${id}.json`), JSON.stringify({ cwd, mode, model, history }));
}

function setup(found) {
  return {
    modes: { currentModeId: found.mode, availableModes: MODES },
    configOptions: configOptions(found),
  };
}

function configOptions(found) {
  const values = ["small", "large"].map((value) => ({ value, name: value }));
  return [{ id: "model", name: "Model", category: "model", type: "select", currentValue: found.model, options: values }];
}

function make(client) {
  const update = (sessionId, body) => client.tell("session/update", { sessionId, update: body });

  /** The words of a prompt, one method each. */
  class Turn {
    constructor(id, found) {
      this.id = id;
      this.found = found;
    }

    update(body) {
      return update(this.id, body);
    }

    async chunk(messageId, content, kind = "agent_message_chunk") {
      if (kind === "agent_message_chunk" && content.type === "text") this.found.history.push({ role: "agent", messageId, text: content.text });
      await this.update({ sessionUpdate: kind, messageId, content });
    }

    say(...texts) {
      const id = randomUUID();
      return texts.reduce((before, text) => before.then(() => this.chunk(id, { type: "text", text })), Promise.resolve());
    }

    async think(text) {
      await this.chunk(randomUUID(), { type: "text", text }, "agent_thought_chunk");
      await this.say("thought");
    }

    async tool() {
      const toolCallId = randomUUID();
      await this.update({ sessionUpdate: "tool_call", toolCallId, title: "Edit a file", kind: "edit", status: "pending", locations: [{ path: "/work/a.txt", line: 1 }], rawInput: { path: "/work/a.txt" } });
      await this.update({ sessionUpdate: "tool_call_update", toolCallId, status: "in_progress" });
      const content = [
        { type: "diff", path: "/work/a.txt", oldText: "old", newText: "new" },
        { type: "content", content: { type: "text", text: "one line" } },
      ];
      await this.update({ sessionUpdate: "tool_call_update", toolCallId, status: "completed", content, rawOutput: { lines: 1 } });
      await this.say("edited");
    }

    async permission() {
      const toolCallId = randomUUID();
      await this.update({ sessionUpdate: "tool_call", toolCallId, title: "Write a file", kind: "edit", status: "pending" });
      const { outcome } = await client.call("session/request_permission", {
        sessionId: this.id,
        toolCall: { toolCallId, title: "Write a file", kind: "edit", content: [{ type: "diff", path: "/work/a.txt", newText: "new" }] },
        options: [
          { optionId: "always", name: "Always", kind: "allow_always" },
          { optionId: "once", name: "Once", kind: "allow_once" },
          { optionId: "no", name: "No", kind: "reject_once" },
        ],
      });
      const allowed = outcome.outcome === "selected" && outcome.optionId !== "no";
      await this.update({ sessionUpdate: "tool_call_update", toolCallId, status: allowed ? "completed" : "failed" });
      if (outcome.outcome === "cancelled") return "cancelled";
      await this.say(allowed ? `allowed ${outcome.optionId}` : "rejected");
    }

    async form() {
      if (!forms) return this.say("no forms");
      const answer = await client.call("elicitation/create", {
        sessionId: this.id,
        mode: "form",
        message: "Who are you?",
        requestedSchema: { type: "object", properties: { name: { type: "string", title: "Name" } }, required: ["name"] },
      });
      await this.say(answer.action === "accept" ? `hello ${answer.content.name}` : answer.action);
    }

    async read(path) {
      const { content } = await client.call("fs/read_text_file", { sessionId: this.id, path });
      await this.say(content);
    }

    async write(path, content) {
      await client.call("fs/write_text_file", { sessionId: this.id, path, content });
      await this.say("written");
    }

    async term(command) {
      const ask = (method, more) => client.call(method, { sessionId: this.id, ...more });
      const { terminalId } = await ask("terminal/create", { command: "sh", args: ["-c", command], outputByteLimit: 65536 });
      const exit = await ask("terminal/wait_for_exit", { terminalId });
      const { output } = await ask("terminal/output", { terminalId });
      await ask("terminal/release", { terminalId });
      await this.say(`exit ${exit.exitCode}: ${output}`);
    }

    async slow() {
      const id = randomUUID();
      for (let tick = 0; tick < 3000; tick += 1) {
        if (this.found.cancelled) return "cancelled";
        await this.chunk(id, { type: "text", text: "tick " });
        await pause(10);
      }
    }

    async blocks() {
      const id = randomUUID();
      for (const block of BLOCKS) await this.chunk(id, block);
      const content = BLOCKS.map((block) => ({ type: "content", content: block }));
      await this.update({ sessionUpdate: "tool_call", toolCallId: randomUUID(), title: "Show", kind: "read", status: "completed", content });
    }

    async state() {
      await this.update({ sessionUpdate: "plan", entries: [{ content: "look", priority: "high", status: "completed" }, { content: "leap", priority: "low", status: "pending" }] });
      await this.update({ sessionUpdate: "available_commands_update", availableCommands: [{ name: "web", description: "Search", input: { hint: "what" } }] });
      await this.update({ sessionUpdate: "session_info_update", title: "A title" });
      await this.update({ sessionUpdate: "usage_update", used: 10, size: 100 });
      await this.say("stated");
    }

    run(text, prompt) {
      const [word, ...rest] = text.split(":");
      const argument = rest.join(":");
      switch (word) {
        case "say": {
          const middle = Math.ceil(argument.length / 2);
          return this.say(argument.slice(0, middle), argument.slice(middle));
        }
        case "two":
          return this.say("one").then(() => this.say("two"));
        case "think":
          return this.think(argument);
        case "tool":
          return this.tool();
        case "permission":
          return this.permission();
        case "ask-form":
          return this.form();
        case "read":
          return this.read(argument);
        case "write":
          return this.write(rest[0], rest.slice(1).join(":"));
        case "term":
          return this.term(argument);
        case "slow":
          return this.slow();
        case "blocks":
          return this.blocks();
        case "state":
          return this.state();
        case "got":
          return this.say(`got ${prompt.map((block) => block.type).join(" ")}`);
        default:
          return this.say(text);
      }
    }
  }

  return {
    initialize: ({ clientCapabilities }) => {
      forms = clientCapabilities?.elicitation?.form != null;
      return {
        protocolVersion: 1,
        agentInfo: { name: isSeed ? "official-seed" : "official-typescript", version: "1" },
        agentCapabilities: {
          loadSession: true,
          promptCapabilities: { image: true, audio: true, embeddedContext: true },
          sessionCapabilities: { list: {}, close: {} },
        },
        authMethods: isAuthenticated ? [] : [{ id: "key", name: "A key" }],
      };
    },
    authenticate: ({ methodId }) => {
      if (methodId !== "key") throw new sdk.RequestError(-32602, "Invalid params", { methodId });
      isAuthenticated = true;
      return {};
    },
    "session/new": ({ cwd }) => {
      if (!isAuthenticated) throw new sdk.RequestError(-32000, "Authentication required");
      const sessionId = randomUUID();
      const found = { cwd, mode: "ask", model: "small", history: [], cancelled: false };
      sessions.set(sessionId, found);
      keep(sessionId);
      return { sessionId, ...setup(found) };
    },
    "session/load": async ({ sessionId }) => {
      const found = session(sessionId);
      for (const { role, messageId, text } of found.history) {
        await update(sessionId, { sessionUpdate: `${role}_message_chunk`, messageId, content: { type: "text", text } });
      }
      return setup(found);
    },
    "session/list": ({ cwd }) => {
      const all = [...sessions].map(([sessionId, found]) => ({ sessionId, cwd: found.cwd }));
      return { sessions: all.filter((each) => !cwd || each.cwd === cwd) };
    },
    "session/close": ({ sessionId }) => {
      session(sessionId).cancelled = true;
      sessions.delete(sessionId);
      return {};
    },
    "session/set_mode": async ({ sessionId, modeId }) => {
      if (!MODES.some((mode) => mode.id === modeId)) throw new sdk.RequestError(-32602, "Invalid params", { modeId });
      session(sessionId).mode = modeId;
      await update(sessionId, { sessionUpdate: "current_mode_update", currentModeId: modeId });
      return {};
    },
    "session/set_config_option": ({ sessionId, configId, value }) => {
      const found = session(sessionId);
      if (configId !== "model") throw new sdk.RequestError(-32602, "Invalid params", { configId });
      found.model = value;
      return { configOptions: configOptions(found) };
    },
    "session/prompt": async ({ sessionId, prompt, messageId }) => {
      const found = session(sessionId);
      const text = prompt.findLast((block) => block.type === "text")?.text ?? "";
      found.cancelled = false;
      const userMessageId = messageId ?? randomUUID();
      found.history.push({ role: "user", messageId: userMessageId, text });
      const stopReason = (await new Turn(sessionId, found).run(text, prompt)) ?? "end_turn";
      keep(sessionId);
      return isSeed ? { stopReason, userMessageId } : { stopReason };
    },
    "session/cancel": ({ sessionId }) => {
      const found = sessions.get(sessionId);
      if (found) found.cancelled = true;
    },
  };
}

if (options.has("--listen")) {
  await listen(options.get("--modules"), (stream) => connectAgent(sdk, isSeed, stream, make).connection);
} else {
  const { closed } = connectAgent(sdk, isSeed, streamOf(sdk, process.stdout, process.stdin), make);
  await closed;
  process.exit(0);
}
