// A client on the official SDK: launches an agent, serves its files and terminals, answers questions, records messages.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { connectClient, streamOf, streamTo } from "./peer.mjs";

/** Settings for a test: how questions are answered. By default the narrowest permission is given. */
export class Editor {
  /** All received messages, in order. */
  messages = [];
  asked = [];
  terminals = new Map();
  choose = (params) => choice(params, "allow_once", "allow_always");
  fill = (params) => ({ action: "accept", content: filled(params.requestedSchema) });

  constructor(target, command) {
    this.target = target;
    const [program, ...args] = command ?? target.command;
    if (/^(ws|http):/.test(program)) {
      this.url = program;
      return;
    }
    this.child = spawn(program, args, { cwd: target.cwd, stdio: ["pipe", "pipe", "inherit"] });
    this.ended = new Promise((resolve) => this.child.on("exit", (code, signal) => resolve({ code, signal })));
    const stream = streamOf(target.sdk, this.child.stdin, this.child.stdout, (message) => this.messages.push(message));
    this.peer = connectClient(target.sdk, target.isSeed, stream, this.handlers());
  }

  /** Connects to an agent that is reached by its address. */
  async connect() {
    if (!this.url || this.peer) return;
    const stream = await streamTo(this.target.modules, this.url, (message) => this.messages.push(message));
    this.peer = connectClient(this.target.sdk, this.target.isSeed, stream, this.handlers());
  }

  get isOpen() {
    return this.url ? !this.isClosed : this.child.exitCode === null && this.child.signalCode === null;
  }

  handlers() {
    const known = (id) => {
      const terminal = this.terminals.get(id);
      if (!terminal) throw new this.target.sdk.RequestError(-32602, "no such terminal");
      return terminal;
    };
    return {
      "session/update": () => {},
      "session/request_permission": async (params) => {
        this.asked.push(params);
        return { outcome: await this.choose(params) };
      },
      "elicitation/create": async (params) => {
        this.asked.push(params);
        return this.fill(params);
      },
      "fs/read_text_file": async ({ path, line, limit }) => {
        let content;
        try {
          content = await readFile(path, "utf8");
        } catch {
          throw new this.target.sdk.RequestError(-32002, `Resource not found: ${path}`, { uri: path });
        }
        if (line == null && limit == null) return { content };
        const begin = (line ?? 1) - 1;
        return { content: content.split("\n").slice(begin, limit == null ? undefined : begin + limit).join("\n") };
      },
      "fs/write_text_file": async ({ path, content }) => {
        await writeFile(path, content);
        return {};
      },
      "terminal/create": ({ command, args, cwd }) => {
        const terminalId = randomUUID();
        this.terminals.set(terminalId, new Terminal(command, args ?? [], cwd ?? this.target.cwd));
        return { terminalId };
      },
      "terminal/output": ({ terminalId }) => known(terminalId).now(),
      "terminal/wait_for_exit": ({ terminalId }) => known(terminalId).exit,
      "terminal/kill": ({ terminalId }) => (known(terminalId).child.kill("SIGKILL"), {}),
      "terminal/release": ({ terminalId }) => {
        known(terminalId).child.kill("SIGKILL");
        this.terminals.delete(terminalId);
        return {};
      },
    };
  }

  call(method, params) {
    return this.peer.call(method, params);
  }

  async initialize(protocolVersion = 1) {
    await this.connect();
    this.agent = await this.call("initialize", {
      protocolVersion,
      clientInfo: { name: "official-typescript", version: "1" },
      clientCapabilities: {
        fs: { readTextFile: true, writeTextFile: true },
        terminal: true,
        elicitation: { form: {} },
        session: { configOptions: { boolean: {} }, notices: {}, compaction: {} },
      },
    });
    return this.agent;
  }

  newSession() {
    return this.call("session/new", { cwd: this.target.cwd, mcpServers: [] });
  }

  /** Runs one turn; returns its messages and its result. */
  async prompt(sessionId, prompt, messageId) {
    const from = this.messages.length;
    const blocks = typeof prompt === "string" ? [{ type: "text", text: prompt }] : prompt;
    const more = messageId === undefined ? {} : { messageId };
    const result = await this.call("session/prompt", { sessionId, prompt: blocks, ...more });
    return { result, updates: this.updates(sessionId, from) };
  }

  /** The updates of a session after the first `from` messages. */
  updates(sessionId, from = 0) {
    const ours = this.messages.slice(from).filter((each) => each.method === "session/update" && each.params.sessionId === sessionId);
    return ours.map((each) => each.params.update);
  }

  /** Waits for a message of the agent that fulfils `is`. */
  async saw(is, what) {
    const deadline = performance.now() + 20_000;
    for (;;) {
      const found = this.messages.find(is);
      if (found) return found;
      assert.ok(performance.now() < deadline, `${what} did not come`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** Closes the agent's input and waits for its exit, which must be quick and clean. */
  async close() {
    if (this.url) return this.disconnect();
    this.child.stdin.end();
    const limit = setTimeout(() => this.child.kill("SIGKILL"), 10_000);
    const { code, signal } = await this.ended;
    clearTimeout(limit);
    assert.equal(signal, null, "the agent did not end when its input did");
    assert.equal(code, 0, "the agent's status at its end");
  }

  /** Kills the agent's process with `SIGKILL`. */
  async kill() {
    if (this.url) return this.disconnect();
    this.child.kill("SIGKILL");
    await this.ended;
  }

  async disconnect() {
    if (!this.isOpen) return;
    this.isClosed = true;
    this.peer.close();
    await this.peer.closed;
  }
}

class Terminal {
  output = "";

  constructor(command, args, cwd) {
    this.child = spawn(command, args, { cwd });
    for (const pipe of [this.child.stdout, this.child.stderr]) pipe.on("data", (bytes) => (this.output += bytes));
    this.exit = new Promise((resolve) => this.child.on("close", (exitCode, signal) => resolve((this.status = { exitCode, signal }))));
  }

  now() {
    return { output: this.output, truncated: false, exitStatus: this.status };
  }
}

/** The first option of one of these kinds, as an outcome. */
export function choice({ options }, ...kinds) {
  const option = kinds.map((kind) => options.find((each) => each.kind === kind)).find((each) => each);
  assert.ok(option, `no option of ${kinds}: ${JSON.stringify(options)}`);
  return { outcome: "selected", optionId: option.optionId };
}

/** A completed form: yes to every question, and a name in every text. */
function filled(schema) {
  const kinds = { boolean: true, string: "Ada", integer: 1, number: 1, array: [] };
  return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, { type }]) => [name, kinds[type]]));
}

/** The chunks of this kind, as messages: the text of each, by its id, in order. */
export function messages(updates, kind = "agent_message_chunk") {
  const all = [];
  for (const update of updates) {
    if (update.sessionUpdate !== kind) continue;
    const last = all.at(-1);
    const text = update.content.text ?? `[${update.content.type}]`;
    if (last && last.id === update.messageId) last.text += text;
    else all.push({ id: update.messageId, text });
  }
  return all;
}

/** The text of all messages. */
export function said(updates) {
  return messages(updates).map((each) => each.text).join("");
}
