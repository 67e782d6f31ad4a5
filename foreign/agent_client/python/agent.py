"""An agent on the official Python SDK: what it does is the text of the prompt.

`--auth` asks for authentication first, `--state FOLDER` keeps its sessions in files,
`--listen` serves it over HTTP and WebSockets in place of standard streams.
"""

import argparse
import asyncio
import json
import logging
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "shared"))

import acp
from acp import schema

from words import FAILURE, PAUSE, PIXEL

BLOCKS = [
    {
        "type": "text",
        "text": "noted",
        "annotations": {"audience": ["assistant"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"},
    },
    {"type": "image", "data": PIXEL, "mimeType": "image/png", "uri": "file:///pixel.png"},
    {"type": "audio", "data": "UklGRgAAAABXQVZF", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "mimeType": "text/plain", "size": 3},
    {"type": "resource", "resource": {"uri": "file:///b.txt", "mimeType": "text/plain", "text": "b"}},
    {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "AAEC"}},
]
MODES = {"ask": "Ask", "code": "Code"}
CHUNKS = {
    "user": schema.UserMessageChunk,
    "agent": schema.AgentMessageChunk,
    "thought": schema.AgentThoughtChunk,
}


@dataclass
class Session:
    """The stored state of a session."""

    cwd: str
    mode: str = "ask"
    model: str = "small"
    history: list[dict[str, str]] = field(default_factory=list)
    cancelled: bool = False

    def setup(self) -> dict[str, Any]:
        modes = [{"id": each, "name": name} for each, name in MODES.items()]
        return {
            "modes": {"currentModeId": self.mode, "availableModes": modes},
            "configOptions": [self.model_option()],
        }

    def model_option(self) -> dict[str, Any]:
        values = [{"value": each, "name": each} for each in ("small", "large")]
        return {
            "id": "model",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": self.model,
            "options": values,
        }


class Turn:
    """The words of a prompt, one method each. Each returns a stop reason, or `None` for the usual one."""

    def __init__(self, client: acp.Client, session_id: str, session: Session, forms: bool) -> None:
        self.client = client
        self.id = session_id
        self.session = session
        self.forms = forms

    async def update(self, model: type, **body: Any) -> None:
        await self.client.session_update(session_id=self.id, update=model.model_validate(body))

    async def chunk(self, message_id: str, content: dict[str, Any], role: str = "agent") -> None:
        if role == "agent" and content["type"] == "text":
            self.session.history.append({"role": role, "messageId": message_id, "text": content["text"]})
        kind = "agent_thought_chunk" if role == "thought" else f"{role}_message_chunk"
        await self.update(CHUNKS[role], sessionUpdate=kind, messageId=message_id, content=content)

    async def speak(self, *texts: str) -> None:
        message_id = str(uuid4())
        for text in texts:
            await self.chunk(message_id, {"type": "text", "text": text})

    async def say(self, text: str) -> None:
        middle = (len(text) + 1) // 2
        await self.speak(text[:middle], text[middle:])

    async def two(self, _: str) -> None:
        await self.speak("one")
        await self.speak("two")

    async def think(self, text: str) -> None:
        await self.chunk(str(uuid4()), {"type": "text", "text": text}, "thought")
        await self.speak("thought")

    async def start(self, title: str, kind: str, **more: Any) -> str:
        call = str(uuid4())
        body = {"toolCallId": call, "title": title, "kind": kind, "status": "pending"} | more
        await self.update(schema.ToolCallStart, sessionUpdate="tool_call", **body)
        return call

    async def progress(self, call: str, status: str, **more: Any) -> None:
        body = {"toolCallId": call, "status": status} | more
        await self.update(schema.ToolCallProgress, sessionUpdate="tool_call_update", **body)

    async def tool(self, _: str) -> None:
        where = {"locations": [{"path": "/work/a.txt", "line": 1}], "rawInput": {"path": "/work/a.txt"}}
        call = await self.start("Edit a file", "edit", **where)
        await self.progress(call, "in_progress")
        content = [
            {"type": "diff", "path": "/work/a.txt", "oldText": "old", "newText": "new"},
            {"type": "content", "content": {"type": "text", "text": "one line"}},
        ]
        await self.progress(call, "completed", content=content, rawOutput={"lines": 1})
        await self.speak("edited")

    async def permission(self, _: str) -> str | None:
        call = await self.start("Write a file", "edit")
        diff = {"type": "diff", "path": "/work/a.txt", "newText": "new"}
        tool_call = {"toolCallId": call, "title": "Write a file", "kind": "edit", "content": [diff]}
        options = [("always", "allow_always"), ("once", "allow_once"), ("no", "reject_once")]
        answer = await self.client.request_permission(
            session_id=self.id,
            tool_call=schema.ToolCallUpdate.model_validate(tool_call),
            options=[schema.PermissionOption(option_id=each, name=each, kind=kind) for each, kind in options],
        )
        outcome = answer.outcome
        allowed = outcome.outcome == "selected" and outcome.option_id != "no"
        await self.progress(call, "completed" if allowed else "failed")
        if outcome.outcome == "cancelled":
            return "cancelled"
        await self.speak(f"allowed {outcome.option_id}" if allowed else "rejected")
        return None

    async def count(self, number: str) -> None:
        message_id = str(uuid4())
        for each in range(int(number)):
            await asyncio.sleep(PAUSE)
            await self.chunk(message_id, {"type": "text", "text": f"{each} "})

    async def image(self, _: str) -> None:
        await self.chunk(str(uuid4()), {"type": "image", "data": PIXEL, "mimeType": "image/png"})

    async def ask(self, _: str) -> str | None:
        call = await self.start("Go on", "execute")
        answer = await self.client.request_permission(
            session_id=self.id,
            tool_call=schema.ToolCallUpdate.model_validate({"toolCallId": call, "title": "Go on"}),
            options=[
                schema.PermissionOption(option_id="once", name="Yes", kind="allow_once"),
                schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
            ],
        )
        await self.progress(call, "completed")
        if answer.outcome.outcome == "cancelled":
            return "cancelled"
        await self.speak(f"heard {answer.outcome.option_id}")
        return None

    async def fail(self, _: str) -> None:
        raise acp.RequestError(-32602, FAILURE)

    async def recall(self, _: str) -> None:
        earlier = [each["text"] for each in self.session.history[:-1] if each["role"] == "user"]
        await self.speak("; ".join(earlier))

    async def ask_form(self, _: str) -> None:
        if not self.forms:
            return await self.speak("no forms")
        wanted = {"type": "object", "properties": {"name": {"type": "string", "title": "Name"}}, "required": ["name"]}
        mode = schema.ElicitationFormSessionMode.model_validate({"sessionId": self.id, "requestedSchema": wanted})
        answer = await self.client.create_elicitation(message="Who are you?", mode=mode)
        accepted = answer.action == "accept"
        return await self.speak(f"hello {answer.content['name']}" if accepted else answer.action)

    async def read(self, path: str) -> None:
        answer = await self.client.read_text_file(session_id=self.id, path=path)
        await self.speak(answer.content)

    async def write(self, rest: str) -> None:
        path, content = rest.split(":", 1)
        await self.client.write_text_file(session_id=self.id, path=path, content=content)
        await self.speak("written")

    async def term(self, command: str) -> None:
        made = await self.client.create_terminal(
            session_id=self.id, command="sh", args=["-c", command], output_byte_limit=65536
        )
        here = {"session_id": self.id, "terminal_id": made.terminal_id}
        ended = await self.client.wait_for_terminal_exit(**here)
        shown = await self.client.terminal_output(**here)
        await self.client.release_terminal(**here)
        await self.speak(f"exit {ended.exit_code}: {shown.output}")

    async def slow(self, _: str) -> str | None:
        message_id = str(uuid4())
        for _ in range(3000):
            if self.session.cancelled:
                return "cancelled"
            await self.chunk(message_id, {"type": "text", "text": "tick "})
            await asyncio.sleep(0.01)
        return None

    async def blocks(self, _: str) -> None:
        message_id = str(uuid4())
        for block in BLOCKS:
            await self.chunk(message_id, block)
        content = [{"type": "content", "content": block} for block in BLOCKS]
        await self.start("Show", "read", status="completed", content=content)

    async def state(self, _: str) -> None:
        entries = [
            {"content": "look", "priority": "high", "status": "completed"},
            {"content": "leap", "priority": "low", "status": "pending"},
        ]
        await self.update(schema.AgentPlanUpdate, sessionUpdate="plan", entries=entries)
        commands = [{"name": "web", "description": "Search", "input": {"hint": "what"}}]
        kind = "available_commands_update"
        await self.update(schema.AvailableCommandsUpdate, sessionUpdate=kind, availableCommands=commands)
        await self.update(schema.SessionInfoUpdate, sessionUpdate="session_info_update", title="A title")
        await self.update(schema.UsageUpdate, sessionUpdate="usage_update", used=10, size=100)
        await self.speak("stated")

    async def run(self, text: str, prompt: list[Any]) -> str | None:
        word, _, rest = text.partition(":")
        if word == "got":
            return await self.speak("got " + " ".join(block.type for block in prompt))
        words = ("say", "two", "think", "tool", "permission", "ask-form", "read", "write", "term")
        if word in (*words, "slow", "blocks", "state", "count", "image", "ask", "fail", "recall"):
            return await getattr(self, word.replace("-", "_"))(rest)
        return await self.speak(text)


class Official(acp.Agent):
    """The agent."""

    def __init__(self, asks_for_key: bool, state: Path | None) -> None:
        self.is_authenticated = not asks_for_key
        self.state = state
        self.sessions: dict[str, Session] = {}
        self.forms = False

    def on_connect(self, conn: acp.Client) -> None:
        self.client = conn

    def session(self, session_id: str) -> Session:
        file = self.state and self.state / f"{session_id}.json"
        if session_id not in self.sessions and file and file.exists():
            self.sessions[session_id] = Session(**json.loads(file.read_text()))
        if session_id not in self.sessions:
            raise acp.RequestError(-32002, "Resource not found", {"sessionId": session_id})
        return self.sessions[session_id]

    def keep(self, session_id: str) -> None:
        if self.state:
            self.state.mkdir(parents=True, exist_ok=True)
            kept = asdict(self.sessions[session_id]) | {"cancelled": False}
            (self.state / f"{session_id}.json").write_text(json.dumps(kept))

    async def initialize(self, protocol_version: int, client_capabilities=None, client_info=None, **_: Any):
        elicitation = client_capabilities and client_capabilities.elicitation
        self.forms = bool(elicitation and elicitation.form is not None)
        prompt = {"image": True, "audio": True, "embeddedContext": True}
        return schema.InitializeResponse.model_validate({
            "protocolVersion": 1,
            "agentInfo": {"name": "official-python", "version": "1"},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": prompt,
                "sessionCapabilities": {"list": {}, "close": {}},
            },
            "authMethods": [] if self.is_authenticated else [{"id": "key", "name": "A key"}],
        })

    async def authenticate(self, method_id: str, **_: Any):
        if method_id != "key":
            raise acp.RequestError.invalid_params({"methodId": method_id})
        self.is_authenticated = True
        return schema.AuthenticateResponse()

    async def new_session(self, cwd: str, additional_directories=None, mcp_servers=None, **_: Any):
        if not self.is_authenticated:
            raise acp.RequestError.auth_required()
        session_id = str(uuid4())
        session = self.sessions[session_id] = Session(cwd)
        self.keep(session_id)
        return schema.NewSessionResponse.model_validate({"sessionId": session_id} | session.setup())

    async def load_session(self, cwd: str, session_id: str, mcp_servers=None, additional_directories=None, **_: Any):
        session = self.session(session_id)
        for each in session.history:
            content = {"type": "text", "text": each["text"]}
            kind = f"{each['role']}_message_chunk"
            body = {"sessionUpdate": kind, "messageId": each["messageId"], "content": content}
            update = CHUNKS[each["role"]].model_validate(body)
            await self.client.session_update(session_id=session_id, update=update)
        return schema.LoadSessionResponse.model_validate(session.setup())

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any):
        found = [{"sessionId": each, "cwd": session.cwd} for each, session in self.sessions.items()]
        return schema.ListSessionsResponse.model_validate(
            {"sessions": [each for each in found if cwd in (None, each["cwd"])]}
        )

    async def close_session(self, session_id: str, **_: Any):
        self.session(session_id).cancelled = True
        del self.sessions[session_id]
        return schema.CloseSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any):
        if mode_id not in MODES:
            raise acp.RequestError.invalid_params({"modeId": mode_id})
        self.session(session_id).mode = mode_id
        body = {"sessionUpdate": "current_mode_update", "currentModeId": mode_id}
        update = schema.CurrentModeUpdate.model_validate(body)
        await self.client.session_update(session_id=session_id, update=update)
        return schema.SetSessionModeResponse()

    async def set_config_option(self, config_id: str, session_id: str, value: str | bool, **_: Any):
        session = self.session(session_id)
        if config_id != "model":
            raise acp.RequestError.invalid_params({"configId": config_id})
        session.model = str(value)
        body = {"configOptions": [session.model_option()]}
        return schema.SetSessionConfigOptionResponse.model_validate(body)

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any):
        session = self.session(session_id)
        texts = [block.text for block in prompt if block.type == "text"]
        text = texts[-1] if texts else ""
        session.cancelled = False
        session.history.append({"role": "user", "messageId": str(uuid4()), "text": text})
        turn = Turn(self.client, session_id, session, self.forms)
        stop_reason = await turn.run(text, prompt) or "end_turn"
        self.keep(session_id)
        return schema.PromptResponse(stop_reason=stop_reason)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise acp.RequestError.method_not_found(f"_{method}")

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session_id in self.sessions:
            self.sessions[session_id].cancelled = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--auth", action="store_true")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--listen", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.listen:
        from listen import listen

        listen(lambda _: Official(options.auth, options.state))
        return
    asyncio.run(acp.run_agent(Official(options.auth, options.state), use_unstable_protocol=True))


if __name__ == "__main__":
    main()
