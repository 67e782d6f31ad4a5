// Measures the official SDK:
//   bench.mjs --modules FOLDER agent
//   bench.mjs --modules FOLDER client UPDATES TURNS -- COMMAND…
// The agent writes the updates that it is asked for. The client launches an agent and prints how many updates,
// and how many turns in a row of one update each, it receives in a second.

import { spawn } from "node:child_process";
import { connectAgent, connectClient, load, streamOf } from "./peer.mjs";

const SESSION = "0195c0de-0000-7000-8000-000000000001";
const MESSAGE = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";

const [, modules, role, updates, turns] = process.argv.slice(2);
const sdk = await load(modules, false);

function agent() {
  connectAgent(sdk, false, streamOf(sdk, process.stdout, process.stdin), (client) => ({
    initialize: () => ({ protocolVersion: 1 }),
    "session/new": () => ({ sessionId: SESSION }),
    "session/prompt": async ({ prompt }) => {
      const count = Number(prompt[0].text.split(" ")[1]);
      const content = { type: "text", text: "and on " };
      for (let sent = 0; sent < count; sent += 1) {
        await client.tell("session/update", { sessionId: SESSION, update: { sessionUpdate: "agent_message_chunk", messageId: MESSAGE, content } });
      }
      return { stopReason: "end_turn" };
    },
  }));
}

async function client(command, flood, row) {
  const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  let seen = 0;
  const peer = connectClient(sdk, false, streamOf(sdk, child.stdin, child.stdout), {
    "session/update": () => {
      seen += 1;
    },
  });
  await peer.call("initialize", { protocolVersion: 1, clientCapabilities: {} });
  await peer.call("session/new", { cwd: process.cwd(), mcpServers: [] });
  const prompt = (count) => peer.call("session/prompt", { sessionId: SESSION, prompt: [{ type: "text", text: `flood ${count}` }] });
  const rate = async (count, work) => {
    const begun = performance.now();
    await work();
    return count / ((performance.now() - begun) / 1000);
  };
  await prompt(1000);
  const result = {
    updates: await rate(flood, () => prompt(flood)),
    turns: await rate(row, async () => {
      for (let done = 0; done < row; done += 1) await prompt(1);
    }),
  };
  if (seen !== 1000 + flood + row) throw new Error(`${seen} updates came`);
  console.log(JSON.stringify(result));
  child.kill();
}

if (role === "agent") agent();
else await client(process.argv.slice(process.argv.indexOf("--") + 1), Number(updates), Number(turns));
