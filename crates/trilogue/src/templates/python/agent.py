"""NAME: an agent of the Agent Client Protocol."""

import asyncio
import uuid

import acp


class Echo(acp.Agent):
    def on_connect(self, client):
        self.client = client

    async def initialize(self, protocol_version, **_):
        return acp.InitializeResponse(protocol_version=acp.PROTOCOL_VERSION)

    async def new_session(self, cwd, **_):
        return acp.NewSessionResponse(session_id=str(uuid.uuid4()))

    async def prompt(self, session_id, prompt, **_):
        text = "\n".join(block.text for block in prompt if block.type == "text")
        await self.client.session_update(session_id, acp.update_agent_message_text(f"You said: {text}"))
        return acp.PromptResponse(stop_reason="end_turn")


asyncio.run(acp.run_agent(Echo()))
