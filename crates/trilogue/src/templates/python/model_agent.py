"""NAME with a model: it answers by any OpenAI-compatible address.

OPENAI_BASE_URL is the address, such as http://127.0.0.1:11434/v1; OPENAI_API_KEY the key, if it wants one; OPENAI_MODEL the model.
"""

import asyncio
import json
import os
import urllib.request
import uuid

import acp

URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/") + "/chat/completions"
KEY = os.environ.get("OPENAI_API_KEY", "")
MODEL = os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")


def pieces(messages):
    """The pieces of the model's answer, as they arrive."""
    body = json.dumps({"model": MODEL, "messages": messages, "stream": True}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    with urllib.request.urlopen(urllib.request.Request(URL, body, headers)) as answer:
        for line in answer:
            data = line.decode().strip().removeprefix("data:").strip()
            if data and data != "[DONE]":
                for choice in json.loads(data).get("choices", []):
                    yield choice["delta"].get("content") or ""


class ModelAgent(acp.Agent):
    def __init__(self):
        self.sessions = {}

    def on_connect(self, client):
        self.client = client

    async def initialize(self, protocol_version, **_):
        return acp.InitializeResponse(protocol_version=acp.PROTOCOL_VERSION)

    async def new_session(self, cwd, **_):
        session_id = str(uuid.uuid4())
        self.sessions[session_id] = []
        return acp.NewSessionResponse(session_id=session_id)

    async def prompt(self, session_id, prompt, **_):
        text = "\n".join(block.text for block in prompt if block.type == "text")
        messages = self.sessions[session_id]
        messages.append({"role": "user", "content": text})
        said, message_id, answer = "", str(uuid.uuid4()), pieces(messages)
        # The request blocks: another thread waits for each piece.
        while (piece := await asyncio.to_thread(next, answer, None)) is not None:
            said += piece
            update = acp.update_agent_message_text(piece)
            update.message_id = message_id
            await self.client.session_update(session_id, update)
        messages.append({"role": "assistant", "content": said})
        return acp.PromptResponse(stop_reason="end_turn")


asyncio.run(acp.run_agent(ModelAgent()))
