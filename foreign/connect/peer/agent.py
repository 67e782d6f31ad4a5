"""A server of the Agent Connect Protocol, written from its official document, with an agent that does what its prompts say.

    python agent.py PORT

The agent takes messages. `say:TEXT` and `count:NUMBER` answer in pieces, `image` sends an image, `ask` interrupts the run,
`slow` runs until it is cancelled, `fail` fails, `recall` repeats the user's earlier messages on the thread.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "shared"))

import uvicorn
from fastapi import Body, FastAPI, HTTPException, Response
from fastapi.responses import JSONResponse, StreamingResponse

from words import FAILURE, PAUSE, PIXEL

AGENT = {
    "agent_id": "0b6ba1de-5b9e-4a0c-9d3c-8f5b9f8f0001",
    "metadata": {"ref": {"name": "org.example.words", "version": "1.0.0"}, "description": "Does what its prompts say."},
}
MESSAGES = {
    "type": "object",
    "properties": {"messages": {"type": "array", "items": {"$ref": "#/$defs/Message"}}},
    "required": ["messages"],
    "$defs": {
        "Message": {
            "type": "object",
            "properties": {
                "role": {"type": "string"},
                "content": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
                "id": {"type": "string"},
                "metadata": {"type": "object"},
            },
            "required": ["role", "content"],
        }
    },
}
APPROVAL = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
DESCRIPTOR = {
    "metadata": AGENT["metadata"],
    "specs": {
        "capabilities": {"threads": True, "interrupts": True, "streaming": {"values": True, "custom": False}},
        "input": MESSAGES,
        "output": MESSAGES,
        "thread_state": MESSAGES,
        "config": {"type": "object"},
        "interrupts": [
            {
                "interrupt_type": "approval",
                "interrupt_payload": {"type": "object", "properties": {"question": {"type": "string"}}},
                "resume_payload": APPROVAL,
            }
        ],
    },
}


def now() -> str:
    return datetime.now(timezone.utc).isoformat()


@dataclass
class Run:
    """A run, its messages so far, and the samples of them for its readers."""

    creation: dict[str, Any]
    thread: str | None
    id: str = field(default_factory=lambda: str(uuid4()))
    created_at: str = field(default_factory=now)
    status: str = "pending"
    output: dict[str, Any] = field(default_factory=dict)
    said: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    # The number of events at the last answer.
    answered: int = 0
    answer: asyncio.Future | None = None
    task: asyncio.Task | None = None

    def shown(self) -> dict[str, Any]:
        return {
            "run_id": self.id,
            "agent_id": AGENT["agent_id"],
            "created_at": self.created_at,
            "updated_at": now(),
            "status": self.status,
            "creation": self.creation,
        } | ({"thread_id": self.thread} if self.thread else {})

    async def set(self, status: str, output: dict[str, Any]) -> None:
        """Records that the run has stopped: it has ended, or it asks."""
        kinds = {"result": "values", "interrupt": "interrupt", "error": "error"}
        async with self.changed:
            self.status, self.output = status, output
            event = output | {"type": kinds[output["type"]], "run_id": self.id, "status": status}
            self.events.append(event)
            self.changed.notify_all()

    async def sample(self) -> None:
        async with self.changed:
            values = {"messages": json.loads(json.dumps(self.said))}
            self.events.append({"type": "values", "run_id": self.id, "status": "pending", "values": values})
            self.changed.notify_all()

    async def settled(self) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.status != "pending")

    async def say(self, text: str) -> None:
        if not self.said:
            self.said.append({"role": "assistant", "content": "", "id": str(uuid4())})
        self.said[-1]["content"] += text
        await self.sample()

    async def ask(self) -> dict[str, Any]:
        self.answer = asyncio.get_running_loop().create_future()
        payload = {"question": "Shall I go on?"}
        asked = {"type": "interrupt", "interrupt": {"approval": payload}}
        await self.set("interrupted", asked)
        return await self.answer

    async def work(self, threads: dict[str, list[dict[str, Any]]]) -> None:
        earlier = threads.get(self.thread or "", [])
        given = self.creation["input"]["messages"]
        try:
            await self.obey(text(given[-1]), earlier)
        except asyncio.CancelledError:
            await self.fail(499, "the run was cancelled")
        except ValueError as error:
            await self.fail(1422, str(error))
        else:
            if self.thread in threads:
                threads[self.thread] = earlier + given + self.said
            await self.set("success", {"type": "result", "values": {"messages": self.said}})

    async def fail(self, errcode: int, description: str) -> None:
        await self.set("error", {"type": "error", "run_id": self.id, "errcode": errcode, "description": description})

    async def obey(self, prompt: str, earlier: list[dict[str, Any]]) -> None:
        word, _, rest = prompt.partition(":")
        if word == "say":
            middle = (len(rest) + 1) // 2
            await self.say(rest[:middle])
            await self.say(rest[middle:])
        elif word == "count":
            for number in range(int(rest)):
                await asyncio.sleep(PAUSE)
                await self.say(f"{number} ")
        elif word == "image":
            metadata = {"content_type": "image/png", "content_encoding": "base64", "content": PIXEL}
            block = {"type": "image", "metadata": metadata}
            self.said.append({"role": "assistant", "content": [block], "id": str(uuid4())})
        elif word == "ask":
            await self.say(f"heard {json.dumps(await self.ask())}")
        elif word == "slow":
            while True:
                await asyncio.sleep(PAUSE)
                await self.say("tick ")
        elif word == "fail":
            raise ValueError(FAILURE)
        elif word == "recall":
            await self.say("; ".join(text(message) for message in earlier if message["role"] == "user"))
        else:
            await self.say(prompt)


def text(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content if block["type"] == "text")


app = FastAPI()
runs: dict[str, Run] = {}
# The messages of each thread.
threads: dict[str, list[dict[str, Any]]] = {}
since = now()


@app.exception_handler(HTTPException)
async def refused(_: object, error: HTTPException) -> JSONResponse:
    """Returns an error whose body is a bare text, as in the document."""
    return JSONResponse(error.detail, error.status_code)


@app.post("/agents/search")
async def search_agents(request: dict[str, Any] = Body(default={})) -> list[dict[str, Any]]:
    name = request.get("name")
    return [AGENT] if name in (None, AGENT["metadata"]["ref"]["name"]) else []


@app.get("/agents/{agent_id}")
async def agent(agent_id: str) -> dict[str, Any]:
    if agent_id != AGENT["agent_id"]:
        raise HTTPException(404, f"there is no agent {agent_id}")
    return AGENT


@app.get("/agents/{agent_id}/descriptor")
async def descriptor(agent_id: str) -> dict[str, Any]:
    await agent(agent_id)
    return DESCRIPTOR


@app.post("/threads")
async def create_thread(request: dict[str, Any] = Body(default={})) -> dict[str, Any]:
    thread_id = request.get("thread_id") or str(uuid4())
    if thread_id in threads and request.get("if_exists") != "do_nothing":
        raise HTTPException(409, f"there is a thread {thread_id}")
    threads.setdefault(thread_id, [])
    return await read_thread(thread_id)


@app.get("/threads/{thread_id}")
async def read_thread(thread_id: str) -> dict[str, Any]:
    if thread_id not in threads:
        raise HTTPException(404, f"there is no thread {thread_id}")
    mine = [run.status for run in runs.values() if run.thread == thread_id]
    status = {"pending": "busy", "interrupted": "interrupted"}.get(mine[-1] if mine else "", "idle")
    values = {"messages": threads[thread_id]}
    named = {"thread_id": thread_id, "created_at": since, "updated_at": now()}
    return named | {"metadata": {}, "status": status, "values": values}


def begin(creation: dict[str, Any], thread: str | None) -> Run:
    if creation.get("agent_id") not in (None, AGENT["agent_id"]):
        raise HTTPException(404, f"there is no agent {creation['agent_id']}")
    if not (creation.get("input") or {}).get("messages"):
        raise HTTPException(422, "the input has no messages")
    if thread is not None and thread not in threads:
        if creation.get("if_not_exists") != "create":
            raise HTTPException(404, f"there is no thread {thread}")
        threads[thread] = []
    if thread is not None and any(run.thread == thread and run.status == "pending" for run in runs.values()):
        raise HTTPException(409, f"the thread {thread} is busy")
    run = Run(creation, thread)
    runs[run.id] = run
    run.task = asyncio.create_task(run.work(threads))
    return run


def find(run_id: str, thread: str | None) -> Run:
    run = runs.get(run_id)
    if run is None or run.thread != thread:
        raise HTTPException(404, f"there is no run {run_id}")
    return run


async def waited(run: Run) -> dict[str, Any]:
    await run.settled()
    return {"run": run.shown(), "output": run.output}


def stream(run: Run, begun: int = 0) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        sent = begun
        while True:
            async with run.changed:
                await run.changed.wait_for(lambda: len(run.events) > sent or run.status != "pending")
            while sent < len(run.events):
                sent += 1
                yield f"id: {sent}\nevent: agent_event\ndata: {json.dumps(run.events[sent - 1])}\n\n"
            if run.status != "pending" and sent == len(run.events):
                return

    return StreamingResponse(events(), media_type="text/event-stream")


async def resumed(run: Run, payload: Any) -> dict[str, Any]:
    if run.status != "interrupted" or run.answer is None:
        raise HTTPException(409, f"the run {run.id} waits for nothing")
    if not isinstance(payload, dict) or not isinstance(payload.get("approved"), bool):
        raise HTTPException(422, "`approved` has to be true or false")
    run.status, run.answered = "pending", len(run.events)
    run.answer.set_result(payload)
    return run.shown()


async def cancelled(run: Run) -> Response:
    if run.task and not run.task.done():
        run.task.cancel()
        await run.task
    return Response(status_code=204)


# Runs are on a thread or stateless: the same operations under two paths.
@app.post("/runs")
@app.post("/threads/{thread_id}/runs")
async def create_run(creation: dict[str, Any], thread_id: str | None = None) -> dict[str, Any]:
    return begin(creation, thread_id).shown()


@app.post("/runs/wait")
@app.post("/threads/{thread_id}/runs/wait")
async def create_and_wait(creation: dict[str, Any], thread_id: str | None = None) -> dict[str, Any]:
    return await waited(begin(creation, thread_id))


@app.post("/runs/stream")
@app.post("/threads/{thread_id}/runs/stream")
async def create_and_stream(creation: dict[str, Any], thread_id: str | None = None) -> StreamingResponse:
    return stream(begin(creation, thread_id))


@app.get("/runs/{run_id}")
@app.get("/threads/{thread_id}/runs/{run_id}")
async def read_run(run_id: str, thread_id: str | None = None) -> dict[str, Any]:
    return find(run_id, thread_id).shown()


@app.post("/runs/{run_id}")
@app.post("/threads/{thread_id}/runs/{run_id}")
async def resume_run(run_id: str, payload: Any = Body(), thread_id: str | None = None) -> dict[str, Any]:
    return await resumed(find(run_id, thread_id), payload)


@app.get("/runs/{run_id}/wait")
@app.get("/threads/{thread_id}/runs/{run_id}/wait")
async def wait(run_id: str, thread_id: str | None = None) -> dict[str, Any]:
    return await waited(find(run_id, thread_id))


@app.get("/runs/{run_id}/stream")
@app.get("/threads/{thread_id}/runs/{run_id}/stream")
async def join(run_id: str, thread_id: str | None = None) -> StreamingResponse:
    run = find(run_id, thread_id)
    # The newest sample has all earlier output; an answered question is not asked again.
    return stream(run, max(len(run.events) - 1, run.answered))


@app.post("/runs/{run_id}/cancel")
@app.post("/threads/{thread_id}/runs/{run_id}/cancel")
async def cancel(run_id: str, thread_id: str | None = None) -> Response:
    return await cancelled(find(run_id, thread_id))


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning")
