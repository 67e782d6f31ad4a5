// One interface to two releases of the official SDK: today's, and the last one that had ids on prompts.

import { createRequire } from "node:module";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

// The older release's names of an agent's methods.
const AGENT = {
  initialize: "initialize",
  authenticate: "authenticate",
  "session/new": "newSession",
  "session/load": "loadSession",
  "session/resume": "resumeSession",
  "session/list": "listSessions",
  "session/delete": "unstable_deleteSession",
  "session/close": "closeSession",
  "session/set_mode": "setSessionMode",
  "session/set_config_option": "setSessionConfigOption",
  "session/prompt": "prompt",
  "session/cancel": "cancel",
};
// Its names of a client's methods.
const CLIENT = {
  "session/request_permission": "requestPermission",
  "session/update": "sessionUpdate",
  "fs/read_text_file": "readTextFile",
  "fs/write_text_file": "writeTextFile",
  "terminal/create": "createTerminal",
  "terminal/output": "terminalOutput",
  "terminal/release": "releaseTerminal",
  "terminal/wait_for_exit": "waitForTerminalExit",
  "terminal/kill": "killTerminal",
  "elicitation/create": "unstable_createElicitation",
};
const NOTIFICATIONS = new Set(["session/update", "session/cancel"]);

/** The SDK of this name, from the folder of its installation. */
export async function load(modules, isSeed) {
  const name = isSeed ? "seed-sdk" : "@agentclientprotocol/sdk";
  const find = createRequire(join(modules, "resolve.cjs"));
  return import(pathToFileURL(find.resolve(name)));
}

/** A stream over the pipes of a process; `see` gets every incoming message, in order. */
export function streamOf(sdk, output, input, see) {
  return tapped(sdk.ndJsonStream(Writable.toWeb(output), Readable.toWeb(input)), see);
}

/** A stream to an agent's address, on the SDK's own transport for its scheme, with the token of the environment. */
export async function streamTo(modules, url, see) {
  const find = createRequire(join(modules, "resolve.cjs"));
  const part = (name) => import(pathToFileURL(find.resolve(name)));
  const headers = { authorization: `Bearer ${process.env.TRILOGUE_TOKEN}` };
  if (url.startsWith("ws")) {
    const { createWebSocketStream } = await part("@agentclientprotocol/sdk/experimental/ws-client");
    const { default: WebSocket } = await part("ws");
    return tapped(createWebSocketStream(url, { headers, WebSocket }), see);
  }
  const { createHttpStream } = await part("@agentclientprotocol/sdk/experimental/http-client");
  return tapped(createHttpStream(url, { headers }), see);
}

function tapped(stream, see) {
  if (!see) return stream;
  const tap = new TransformStream({
    transform(message, controller) {
      see(message);
      controller.enqueue(message);
    },
  });
  return { writable: stream.writable, readable: stream.readable.pipeThrough(tap) };
}

/** Connects a client: `handlers` by method. Returns `call`, `tell` and `closed`. */
export function connectClient(sdk, isSeed, stream, handlers) {
  if (isSeed) {
    const connection = new sdk.ClientSideConnection(() => named(CLIENT, handlers), stream);
    return seedPeer(connection, AGENT, connection.closed);
  }
  const app = register(sdk.client({ name: "official-typescript" }), handlers);
  const connection = app.connect(stream);
  return {
    call: (method, params) => connection.agent.request(method, params),
    tell: (method, params) => connection.agent.notify(method, params),
    close: () => connection.close(),
    closed: connection.closed,
  };
}

/** Connects an agent; `make` creates its handlers from its peer. */
export function connectAgent(sdk, isSeed, stream, make) {
  if (isSeed) {
    let closed;
    const connection = new sdk.AgentSideConnection((client) => {
      return named(AGENT, make(seedPeer(client, CLIENT)));
    }, stream);
    closed = connection.closed;
    return { closed };
  }
  let peer;
  const later = (kind) => (method, params) => peer[kind](method, params);
  const app = register(sdk.agent({ name: "official-typescript" }), make({ call: later("request"), tell: later("notify") }));
  const connection = app.connect(stream);
  peer = connection.client;
  return { closed: connection.closed, connection };
}

function register(app, handlers) {
  for (const [method, handle] of Object.entries(handlers)) {
    if (NOTIFICATIONS.has(method)) app.onNotification(method, ({ params }) => handle(params));
    else app.onRequest(method, ({ params }) => handle(params));
  }
  return app;
}

function named(names, handlers) {
  return Object.fromEntries(Object.entries(handlers).map(([method, handle]) => [names[method], handle]));
}

function seedPeer(connection, names, closed) {
  const call = async (method, params) => {
    if (names[method] === undefined) return connection.extMethod(method, params);
    const result = await connection[names[method]](params);
    // The older release returns an object for a terminal; its id is the result.
    return method === "terminal/create" && result?.id ? (terminals.set(result.id, result), { terminalId: result.id }) : result;
  };
  const terminals = new Map();
  const ofTerminal = { "terminal/output": "currentOutput", "terminal/wait_for_exit": "waitForExit", "terminal/kill": "kill", "terminal/release": "release" };
  return {
    call: (method, params) => {
      const terminal = terminals.get(params?.terminalId);
      return terminal && ofTerminal[method] ? terminal[ofTerminal[method]]() : call(method, params);
    },
    tell: (method, params) => connection[names[method]](params),
    closed,
  };
}
