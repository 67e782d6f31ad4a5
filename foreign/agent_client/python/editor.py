"""A client on the official SDK: launches an agent, serves its files and terminals, answers questions, records messages."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import acp
from acp import schema

from faces import Faces
from transport import is_address, open_transport

# The longest line that is accepted from an agent, in bytes.
LINE_LIMIT = 50 << 20
# The time limit for a message of the agent, in seconds.
SEE_LIMIT = 20.0
# The time limit for the agent's exit after the end of its input, in seconds.
END_LIMIT = 20.0


@dataclass
class Target:
    """The agent under test, and its expected features."""

    command: list[str]
    cwd: str
    name: str | None
    prompt: str
    # Whether the agent must do everything that Trilogue promises, not only what the protocol requires.
    is_trilogue: bool
    # Whether it records the ids of prompts.
    has_ids: bool
    # Whether it knows every word of our example agents.
    has_vocabulary: bool
    # The server's other protocols.
    faces: Faces | None = None

    def open(self) -> "Editor":
        return Editor(self)


class Terminal:
    """A command that the agent requested."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output = b""
        self.reading = asyncio.create_task(self.read())

    async def read(self) -> int:
        assert self.process.stdout
        while piece := await self.process.stdout.read(4096):
            self.output += piece
        return await self.process.wait()


class Editor(acp.Client):
    """The client. A context manager: it launches and initialises the agent on entry, and closes it on exit."""

    def __init__(self, target: Target) -> None:
        self.target = target
        # All received messages, in order.
        self.messages: list[dict[str, Any]] = []
        # The updates as the SDK parsed them.
        self.typed: list[Any] = []
        self.asked: list[Any] = []
        self.terminals: dict[str, Terminal] = {}
        # How questions are answered; by default with the narrowest permission.
        self.choose: Callable[..., Any] = lambda options: choice(options, "allow_once", "allow_always")
        self.fill: Callable[..., Any] = lambda mode: schema.AcceptElicitationResponse(action="accept", content=filled(mode))
        self.stack = AsyncExitStack()

    async def __aenter__(self) -> "Editor":
        await self.connect()
        self.hello = await self.agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_info=schema.Implementation(name="official-python", version="1"),
            client_capabilities=schema.ClientCapabilities.model_validate({
                "fs": {"readTextFile": True, "writeTextFile": True},
                "terminal": True,
                "elicitation": {"form": {}},
                "session": {"configOptions": {"boolean": {}}},
            }),
        )
        return self

    async def connect(self) -> None:
        self.process: Any = None
        if is_address(self.target.command[0]):
            transport = await open_transport(self.target.command[0])
            self.agent = acp.connect_to_agent(self, transport, use_unstable_protocol=True, observers=[self.see])
            self.stack.push_async_callback(self.agent.close)
            return
        spawned = acp.spawn_agent_process(
            self,
            *self.target.command,
            env=dict(os.environ),
            cwd=self.target.cwd,
            transport_kwargs={"limit": LINE_LIMIT, "stderr": None, "shutdown_timeout": END_LIMIT},
            use_unstable_protocol=True,
            observers=[self.see],
        )
        self.agent, self.process = await self.stack.enter_async_context(spawned)

    async def __aexit__(self, *raised: Any) -> None:
        await self.stack.aclose()
        if raised[0] is None and self.process and self.process.returncode not in (0, -9):
            raise AssertionError(f"the agent ended with {self.process.returncode} when its input did")

    async def kill(self) -> None:
        """Kills the agent's process with `SIGKILL`."""
        if self.process is None:
            await self.agent.close()
            return
        self.process.kill()
        await self.process.wait()

    def see(self, event: Any) -> None:
        if event.direction.value == "incoming":
            self.messages.append(event.message)

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """Sends a raw request that the SDK cannot send or does not show."""
        return await self.agent._conn.send_request(method, params)

    async def new_session(self) -> Any:
        return await self.agent.new_session(cwd=self.target.cwd, mcp_servers=[])

    async def load(self, session_id: str) -> Any:
        return await self.agent.load_session(cwd=self.target.cwd, session_id=session_id, mcp_servers=[])

    async def prompt(self, session_id: str, prompt: Any, message_id: Any = None) -> "Turn":
        """Runs one turn; returns its messages and its result. Uses the SDK's types unless there is an id."""
        begun = len(self.messages)
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else prompt
        if message_id is None:
            adapter = schema.PromptRequest.model_validate({"sessionId": session_id, "prompt": blocks})
            result = await self.agent.prompt(session_id=session_id, prompt=adapter.prompt)
            assert isinstance(result, schema.PromptResponse)
        else:
            params = {"sessionId": session_id, "prompt": blocks, "messageId": message_id}
            await self.call("session/prompt", params)
        answers = [each for each in self.messages[begun:] if "stopReason" in (each.get("result") or {})]
        return Turn(answers[-1]["result"], self.updates(session_id, begun))

    def updates(self, session_id: str, begun: int = 0) -> list[dict[str, Any]]:
        """The updates of a session after the first `begun` messages."""
        ours = [each for each in self.messages[begun:] if each.get("method") == "session/update"]
        return [each["params"]["update"] for each in ours if each["params"]["sessionId"] == session_id]

    async def saw(self, what: str, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Waits for a message of the agent that fulfils this condition."""
        deadline = time.monotonic() + SEE_LIMIT
        while True:
            for message in self.messages:
                if is_it(message):
                    return message
            assert time.monotonic() < deadline, f"{what} did not come"
            await asyncio.sleep(0.005)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.typed.append(update)

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any):
        self.asked.append(tool_call)
        outcome = self.choose(options)
        outcome = await outcome if asyncio.iscoroutine(outcome) else outcome
        return schema.RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **_: Any):
        self.asked.append(mode)
        answer = self.fill(mode)
        return await answer if asyncio.iscoroutine(answer) else answer

    async def read_text_file(self, session_id: str, path: str, line=None, limit=None, **_: Any):
        try:
            lines = Path(path).read_text().split("\n")
        except OSError:
            raise acp.RequestError(-32002, f"Resource not found: {path}", {"uri": path}) from None
        begin = (line or 1) - 1
        return schema.ReadTextFileResponse(content="\n".join(lines[begin : begin + limit if limit is not None else None]))

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any):
        Path(path).write_text(content)
        return schema.WriteTextFileResponse()

    async def create_terminal(self, session_id: str, command: str, args=None, env=None, cwd=None, output_byte_limit=None, **_: Any):
        process = await asyncio.create_subprocess_exec(
            command,
            *(args or []),
            cwd=cwd or self.target.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        terminal_id = str(uuid4())
        self.terminals[terminal_id] = Terminal(process)
        return schema.CreateTerminalResponse(terminal_id=terminal_id)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any):
        output = self.terminals[terminal_id].output.decode(errors="replace")
        return schema.TerminalOutputResponse(output=output, truncated=False)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any):
        code = await asyncio.shield(self.terminals[terminal_id].reading)
        return schema.WaitForTerminalExitResponse(exit_code=code)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any):
        self.terminals[terminal_id].process.kill()
        return schema.KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any):
        terminal = self.terminals.pop(terminal_id)
        if terminal.process.returncode is None:
            terminal.process.kill()
        return schema.ReleaseTerminalResponse()


@dataclass
class Turn:
    """The raw result of a prompt, and the raw updates of its turn."""

    result: dict[str, Any]
    updates: list[dict[str, Any]]

    @property
    def stop_reason(self) -> str:
        return self.result["stopReason"]

    @property
    def said(self) -> str:
        return "".join(text for _, text in messages(self.updates))

    @property
    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for update in self.updates]


def choice(options: list[Any], *kinds: str) -> Any:
    """The first option of one of these kinds, as an outcome."""
    for kind in kinds:
        for option in options:
            if option.kind == kind:
                return schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
    raise AssertionError(f"no option of {kinds}: {options}")


def filled(mode: Any) -> dict[str, Any]:
    """A completed form: yes to every question, and a name in every text."""
    kinds = {"boolean": True, "string": "Ada", "integer": 1, "number": 1, "array": []}
    return {name: kinds[each.type] for name, each in (mode.requested_schema.properties or {}).items()}


def messages(updates: list[dict[str, Any]], kind: str = "agent_message_chunk") -> list[tuple[Any, str]]:
    """The chunks of this kind as messages: the id and the text of each, in order."""
    found: list[tuple[Any, str]] = []
    for update in updates:
        if update["sessionUpdate"] != kind:
            continue
        name, text = update.get("messageId"), update["content"].get("text", f"[{update['content']['type']}]")
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1] + text)
        else:
            found.append((name, text))
    return found
