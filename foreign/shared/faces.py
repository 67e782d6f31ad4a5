"""The other protocols of a server: they answer, cancel or begin turns for a client, with plain requests."""

import asyncio
import json
import time
import urllib.request
from typing import Any

# The time limit for an object to appear, in seconds.
APPEAR_LIMIT = 30.0
# The time limit for one request, in seconds.
REQUEST_LIMIT = 60.0
# The answers to a question, by its kind: the words, the data, and the result that the agent gets.
ANSWERS = {
    "permission": ("once", {"option_id": "once"}, "once"),
    "message": ("go on", {"message": "go on"}, "go on"),
}
APPROVED = ('{"approved": true}', {"approved": True}, "true")


class Faces:
    """A server whose three protocols have their default paths below `base`."""

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
        """The first item of a list that fulfils this condition, once there is one."""
        deadline = time.monotonic() + APPEAR_LIMIT
        while True:
            items = (await self.call("GET", path))["items"]
            for item in items:
                if is_it(item):
                    return item
            assert time.monotonic() < deadline, f"{what} did not appear: {items}"
            await asyncio.sleep(0.02)

    async def question(self, thread: str) -> dict[str, Any]:
        """The open question of a thread."""
        return await self.appeared(
            f"a question on {thread}",
            f"/api/v1/interrupts?pending=true&thread_id={thread}",
            lambda _: True,
        )

    async def at_work(self, thread: str) -> str:
        """The id of the running run of a thread."""
        path = f"/api/v1/runs?thread_id={thread}"
        return (await self.appeared(f"a run on {thread}", path, lambda item: item["status"] == "running"))["id"]

    async def words_for(self, thread: str) -> tuple[str, str]:
        """The words that answer a thread's question, and the result that the agent gets."""
        words, _, heard = ANSWERS.get((await self.question(thread))["kind"], APPROVED)
        return words, heard

    async def data_for(self, thread: str) -> tuple[object, str]:
        """The data that answers a thread's question, and the result that the agent gets."""
        _, data, heard = ANSWERS.get((await self.question(thread))["kind"], APPROVED)
        return data, heard

    async def answer_through(self, protocol: str, thread: str) -> str:
        """Answers a thread's question like a client of this protocol; returns the result that the agent gets."""
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
        """Cancels the running run of a thread like a client of this protocol."""
        run = await self.at_work(thread)
        place = f"/communication/runs/{run}" if protocol == "communication" else f"/connect/threads/{thread}/runs/{run}"
        await self.call("POST", f"{place}/cancel", {})

    async def say_through(self, protocol: str, agent: str, thread: str, text: str) -> None:
        """Runs a whole turn on a thread, like a client of this protocol."""
        if protocol == "communication":
            message = {"role": "user", "parts": [{"content_type": "text/plain", "content": text}]}
            body = {"agent_name": agent, "session_id": thread, "input": [message], "mode": "sync"}
            run = await self.call("POST", "/communication/runs", body)
            assert run["status"] == "completed", run
        else:
            body = {"agent_id": agent, "input": {"message": text}, "if_not_exists": "create"}
            answer = await self.call("POST", f"/connect/threads/{thread}/runs/wait", body)
            assert answer["run"]["status"] == "success", answer
