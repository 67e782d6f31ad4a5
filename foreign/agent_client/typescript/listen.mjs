// Serves an agent with the server of the official SDK, over HTTP and over WebSockets.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** Listens on a free port of this machine and prints its number; `connect` serves one stream. */
export async function listen(modules, connect) {
  const find = createRequire(join(modules, "resolve.cjs"));
  const load = (name) => import(pathToFileURL(find.resolve(name)));
  const { AcpServer } = await load("@agentclientprotocol/sdk/experimental/server");
  const { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } = await load(
    "@agentclientprotocol/sdk/experimental/node",
  );
  const { WebSocketServer } = (await load("ws")).default;
  const server = new AcpServer({ createAgent: () => ({ connect }) });
  const http = createServer(createNodeHttpHandler(server));
  http.on("upgrade", createNodeWebSocketUpgradeHandler(server, new WebSocketServer({ noServer: true })));
  http.listen(0, "127.0.0.1", () => console.log(http.address().port));
}
