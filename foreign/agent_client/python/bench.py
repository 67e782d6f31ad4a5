"""Measures the official SDK: `bench.py agent`, or `bench.py client UPDATES TURNS -- COMMAND…`.

The agent writes the updates that it is asked for. The client launches an agent and prints how many updates,
and how many turns in a row of one update each, it receives in a second.
"""

import asyncio
import json
import logging
import os
import sys
import time
from typing import Any

import acp
from acp import schema

SESSION = "0195c0de-0000-7000-8000-000000000001"
MESSAGE = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
WARM_UP = 1000


class Agent(acp.Agent):
    def on_connect(self, conn: acp.Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=1)

    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:
        return schema.NewSessionResponse(session_id=SESSION)

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        content = schema.TextContentBlock(type="text", text="and on ")
        update = schema.AgentMessageChunk(session_update="agent_message_chunk", message_id=MESSAGE, content=content)
        for _ in range(int(prompt[0].text.split()[1])):
            await self.client.session_update(session_id=SESSION, update=update)
        return schema.PromptResponse(stop_reason="end_turn")


class Client(acp.Client):
    seen = 0

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.seen += 1


async def client(updates: int, turns: int, command: list[str]) -> None:
    counting = Client()
    async with acp.spawn_agent_process(counting, *command, env=dict(os.environ), transport_kwargs={"stderr": None}) as (agent, _):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION, client_capabilities=schema.ClientCapabilities())
        await agent.new_session(cwd=os.getcwd(), mcp_servers=[])

        async def prompt(count: int) -> None:
            await agent.prompt(session_id=SESSION, prompt=[schema.TextContentBlock(type="text", text=f"flood {count}")])

        await prompt(WARM_UP)
        begun = time.perf_counter()
        await prompt(updates)
        flood = updates / (time.perf_counter() - begun)
        begun = time.perf_counter()
        for _ in range(turns):
            await prompt(1)
        row = turns / (time.perf_counter() - begun)
        # This SDK runs handlers of notifications in separate tasks, so the last may not have run yet.
        while counting.seen < WARM_UP + updates + turns:
            await asyncio.sleep(0)
    print(json.dumps({"updates": flood, "turns": row}))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if sys.argv[1] == "agent":
        asyncio.run(acp.run_agent(Agent()))
    else:
        asyncio.run(client(int(sys.argv[2]), int(sys.argv[3]), sys.argv[5:]))
