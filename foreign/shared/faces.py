"""The other faces of a server: what one client began is answered, cancelled or begun there, with plain requests."""

import asyncio
import json
import time
import urllib.request
from typing import Any

# Seconds that something may take to appear.
APPEAR_LIMIT = 30.0
# Seconds that one request may take.
REQUEST_LIMIT = 60.0
# What answers a question, by its kind: the words, the data, and what the agent hears.
ANSWERS = {
    "permission": ("once", {"option_id": "once"}, "once"),
    "message": ("go on", {"message": "go on"}, "go on"),
}
APPROVED = ('{"approved": true}', {"approved": True}, "true")


class Faces:
    """A server whose three protocols are at their usual places below `base`."""

    def __init__(self, base: str, token: str | None) -> None:
        self.base = base.rstrip("/")
        self.token = token

    async def call(self, method: str, path: str, body: object = None) -> Any:
        return await asyncio.to_thread(self.call_now, method, path, body)

    def call_now(self, method: str, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} | ({"x-api-key": self.token} if self.token else {})
        request = urllib.request.Request(self.base + path, data=data, method=method, headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=REQUEST_LIMIT) as answer:
            return json.loads(answer.read() or b"null")

    async def appeared(self, what: str, path: str, is_it: Any) -> dict[str, Any]:
        """The first item of a list that this is true of, once there is one."""
        deadline = time.monotonic() + APPEAR_LIMIT
        while True:
            items = (await self.call("GET", path))["items"]
            for item in items:
                if is_it(item):
                    return item
            assert time.monotonic() < deadline, f"{what} did not appear: {items}"
            await asyncio.sleep(0.02)

    async def question(self, thread: str) -> dict[str, Any]:
        """What a thread is asked."""
        return await self.appeared(
            f"a question on {thread}",
            f"/api/v1/interrupts?pending=true&thread_id={thread}",
            lambda _: True,
        )

    async def at_work(self, thread: str) -> str:
        """The run that is at work on a thread."""
        path = f"/api/v1/runs?thread_id={thread}"
        return (await self.appeared(f"a run on {thread}", path, lambda item: item["status"] == "running"))["id"]

    async def words_for(self, thread: str) -> tuple[str, str]:
        """The words that answer what a thread is asked, and what the agent will have heard."""
        words, _, heard = ANSWERS.get((await self.question(thread))["kind"], APPROVED)
        return words, heard

    async def data_for(self, thread: str) -> tuple[object, str]:
        """The data that answers what a thread is asked, and what the agent will have heard."""
        _, data, heard = ANSWERS.get((await self.question(thread))["kind"], APPROVED)
        return data, heard

    async def answer_through(self, protocol: str, thread: str) -> str:
        """Answers what a thread is asked as a client of this protocol does; gives what the agent will have heard."""
        question = await self.question(thread)
        words, data, heard = ANSWERS.get(question["kind"], APPROVED)
        run = question["run_id"]
        if protocol == "communication":
            parts = [{"content_type": "text/plain", "content": words}]
            resume = {"type": "message", "message": {"role": "user", "parts": parts}}
            body = {"run_id": run, "await_resume": resume, "mode": "async"}
            await self.call("POST", f"/communication/runs/{run}", body)
        else:
            await self.call("POST", f"/connect/threads/{thread}/runs/{run}", data)
        return heard

    async def cancel_through(self, protocol: str, thread: str) -> None:
        """Cancels what is at work on a thread as a client of this protocol does."""
        run = await self.at_work(thread)
        place = f"/communication/runs/{run}" if protocol == "communication" else f"/connect/threads/{thread}/runs/{run}"
        await self.call("POST", f"{place}/cancel", {})

    async def say_through(self, protocol: str, agent: str, thread: str, text: str) -> None:
        """A whole turn on a thread, as a client of this protocol has it."""
        if protocol == "communication":
            message = {"role": "user", "parts": [{"content_type": "text/plain", "content": text}]}
            body = {"agent_name": agent, "session_id": thread, "input": [message], "mode": "sync"}
            run = await self.call("POST", "/communication/runs", body)
            assert run["status"] == "completed", run
        else:
            body = {"agent_id": agent, "input": {"message": text}, "if_not_exists": "create"}
            answer = await self.call("POST", f"/connect/threads/{thread}/runs/wait", body)
            assert answer["run"]["status"] == "success", answer
