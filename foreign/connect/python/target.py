"""The server under test, and one interface to both official clients."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agntcy_acp import ACPClient, ApiClientConfiguration, ApiException, AsyncACPClient
from agntcy_acp.models import AgentSearchRequest, RunOutputStream, RunStatus

from check import equal
from faces import Faces

# The time limit for a run to reach the status that a check waits for, in seconds.
SETTLE_LIMIT = 20.0
# The time limit for one request, in seconds.
REQUEST_LIMIT = 30.0


class Caller:
    """The official client, blocking or asynchronous, behind one interface."""

    def __init__(self, client: ACPClient | AsyncACPClient) -> None:
        self.client = client
        self.is_async = isinstance(client, AsyncACPClient)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        operation = getattr(self.client, name)
        if self.is_async:
            return operation

        async def call(*args: object, **named: object) -> object:
            return await asyncio.to_thread(operation, *args, **named)

        return call

    async def stream(self, name: str, *args: object, **named: object) -> list["Event"]:
        """The events of a stream up to its end, each once.

        The client can return an event twice; both must be the same.
        """
        return once(await self.rest(getattr(self.client, name)(*args, **named)))

    async def first(self, stream: Iterator[RunOutputStream] | AsyncIterator[RunOutputStream]) -> RunOutputStream:
        """The next event of a stream of the client."""
        return await anext(stream) if self.is_async else await asyncio.to_thread(next, stream)

    async def rest(self, stream: Iterator[RunOutputStream] | AsyncIterator[RunOutputStream]) -> list[RunOutputStream]:
        """All events up to the end of a stream of the client."""
        return [event async for event in stream] if self.is_async else await asyncio.to_thread(list, stream)


class Event:
    """One event of a stream."""

    def __init__(self, raw: RunOutputStream) -> None:
        equal(raw.event, "agent_event", "event name")
        assert raw.id, f"an event has no id: {raw!r}"
        self.id = raw.id
        self.data = raw.data.to_dict()
        self.type = self.data["type"]
        self.status = self.data.get("status")

    def __repr__(self) -> str:
        return f"{self.id} {json.dumps(self.data)}"


def once(given: list[RunOutputStream]) -> list[Event]:
    """The client's events, each once; an event that came twice must be the same."""
    events: dict[str, Event] = {}
    for raw in given:
        event = Event(raw)
        first = events.setdefault(event.id, event)
        equal(event.data, first.data, f"event {event.id}, given again")
    ids = [order(each) for each in events]
    equal(ids, sorted(set(ids)), "ids in order")
    return list(events.values())


def order(event_id: str) -> tuple[int, bool]:
    """An id's position: `7.v`, a sample of the values, comes after `7`, the update that produced it."""
    number, _, sample = event_id.partition(".")
    assert sample in ("", "v"), f"the id {event_id!r}"
    return int(number), sample == "v"


@dataclass
class Target:
    """The server under test, and its address."""

    url: str
    key: str | None = None
    is_async: bool = True
    # The id of the echo agent.
    echo: str = ""
    # Whether the server follows the document: a stream begins with its run, which this client cannot read,
    # and a state that no descriptor declares is not shown.
    as_documented: bool = False
    # The agent that does what its prompts say, and the server's other protocols.
    agent: str | None = None
    faces: Faces | None = None

    def undeclared(self, values: dict) -> dict | None:
        """The state of a thread whose agent declares none, as responses show it."""
        return None if self.as_documented else values

    @asynccontextmanager
    async def client(self, key: str | None = None):
        key = key if key is not None else self.key
        keys = {"x-api-key": key} if key else None
        configuration = ApiClientConfiguration(host=self.url, api_key=keys, retries=0, timeout=REQUEST_LIMIT)
        if self.is_async:
            async with AsyncACPClient(configuration=configuration) as client:
                yield Caller(client)
        else:
            with ACPClient(configuration=configuration) as client:
                yield Caller(client)

    async def raw(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> "Answer":
        """Sends a plain request that the official client cannot send or does not show."""
        return await asyncio.to_thread(self.raw_now, method, path, body, headers or {})

    def raw_now(self, method: str, path: str, body: object, headers: dict[str, str]) -> "Answer":
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} | ({"x-api-key": self.key} if self.key else {}) | headers
        request = urllib.request.Request(self.url.rstrip("/") + path, data=data, method=method, headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=REQUEST_LIMIT) as answer:
                return Answer(answer.status, dict(answer.headers.items()), answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers.items()), error.read())


@dataclass
class Answer:
    """The whole response to a plain request."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> object:
        return json.loads(self.body)


async def agent_id(target: Target, name: str) -> str:
    """The id of an agent of this name."""
    async with target.client() as client:
        found = await client.search_agents(AgentSearchRequest(name=name))
    equal(len(found), 1, f"number of agents called {name}")
    return found[0].agent_id


async def refused(call: Awaitable[object], error: type[ApiException], text: str = "") -> ApiException:
    """The error of a call that must be refused with this error and this text."""
    try:
        answer = await call
    except ApiException as raised:
        equal(type(raised), error, f"class of {raised}")
        said = str(raised.data or raised.body)
        assert said, "the error says nothing"
        assert text in said, f"the error does not say {text!r}: {said}"
        return raised
    raise AssertionError(f"the call was answered: {answer!r}")


async def settled(look: Callable[[], Awaitable[object]], *wanted: RunStatus) -> object:
    """Polls a run until it has one of these statuses."""
    deadline = time.monotonic() + SETTLE_LIMIT
    while True:
        run = await look()
        if run.status in wanted:
            return run
        if run.status != RunStatus.PENDING or time.monotonic() > deadline:
            raise AssertionError(f"the run is {run.status.value}, not {[each.value for each in wanted]}: {run!r}")
        await asyncio.sleep(0.02)
