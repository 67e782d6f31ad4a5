"""The server under test, and the assertions of checks."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

import httpx
from acp_sdk.client import Client
from acp_sdk.models import ACPError, Run, RunStatus

from check import CHECK_LIMIT, equal
from faces import Faces

# The time limit for a run to reach the status that a check waits for, in seconds.
SETTLE_LIMIT = 20.0


@dataclass
class Target:
    """The server under test, and its address."""

    url: str
    token: str | None = None
    # Further servers of the same kind, for sessions that move.
    peers: list[str] = field(default_factory=list)
    # The agent that does what its prompts say, and the server's other protocols.
    agent: str | None = None
    faces: Faces | None = None

    def client(self, **options: object) -> Client:
        headers = {"authorization": f"Bearer {self.token}"} if self.token else None
        return Client(base_url=self.url, headers=headers, trust_env=False, **options)

    def http(self) -> httpx.AsyncClient:
        """A plain client, for requests that the official one cannot send."""
        headers = {"authorization": f"Bearer {self.token}"} if self.token else None
        base = self.url.rstrip("/") + "/"
        return httpx.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=CHECK_LIMIT)


async def refused(call: Awaitable[object], code: str) -> ACPError:
    """The error of a call that must be refused with this code."""
    try:
        answer = await call
    except ACPError as error:
        equal(str(getattr(error.error.code, "value", error.error.code)), code, "error code")
        if not error.error.message:
            raise AssertionError("the error has no message") from error
        return error
    raise AssertionError(f"the call was answered: {answer!r}")


async def settled(client: Client, run: Run, *wanted: RunStatus) -> Run:
    """Polls a run until it has one of these statuses."""
    deadline = time.monotonic() + SETTLE_LIMIT
    while run.status not in wanted:
        if run.status.is_terminal or time.monotonic() > deadline:
            raise AssertionError(f"the run is {run.status.value}, not {[each.value for each in wanted]}: {run!r}")
        await asyncio.sleep(0.02)
        run = await client.run_status(run_id=run.run_id)
    return run
