"""The built-in agents of the server, through the official client with a token."""

from acp_sdk.models import (
    Message,
    MessageAwaitResume,
    MessagePart,
    RunAwaitingEvent,
    RunCompletedEvent,
    RunCreatedEvent,
    RunStatus,
)

from check import Suite, equal
from target import Target, refused

suite = Suite("builtin")

HELLO = [Message(parts=[MessagePart(content="Hello!")])]
LETTER = [Message(parts=[MessagePart(content="Write to ada@example.com about the report: it is ready.")])]


def answer(text: str) -> MessageAwaitResume:
    return MessageAwaitResume(message=Message(parts=[MessagePart(content=text)]))


@suite.check
async def agents(target: Target) -> None:
    async with target.client() as client:
        names = {agent.name async for agent in client.agents()}
        assert {"echo", "mailcomposer", "researcher"} <= names, names
        for name in names:
            equal((await client.agent(name=name)).name, name, "name")


@suite.check
async def echo(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_sync(HELLO, agent="echo")
        equal(run.status, RunStatus.COMPLETED, "status")
        equal(str(run.output[0]), "Hello!", "output")


@suite.check
async def researcher_as_a_stream(target: Target) -> None:
    async with target.client() as client:
        events = [event async for event in client.run_stream("what is a log?", agent="researcher")]
        assert isinstance(events[0], RunCreatedEvent) and isinstance(events[-1], RunCompletedEvent)
        listed = [event async for event in client.run_events(run_id=events[0].run.run_id)]
        equal(listed, events, "events")
        parts = [part for message in events[-1].run.output for part in message.parts]
        kinds = {part.metadata.kind for part in parts if part.metadata is not None}
        equal(kinds, {"citation", "trajectory"}, "kinds of metadata")
        assert any(part.name is not None for part in parts), "there is no artifact"
        assert any(part.content_url is not None for part in parts), "no part has an address"


@suite.check
async def mailcomposer_asks(target: Target) -> None:
    async with target.client() as client:
        events = [event async for event in client.run_stream(LETTER, agent="mailcomposer")]
        assert isinstance(events[-1], RunAwaitingEvent), events[-1]
        run = events[-1].run
        assert run.await_request.message.parts, "the request says nothing"
        data = answer('{"approved": true, "reason": "fine"}')
        run = await client.run_resume_sync(data, run_id=run.run_id)
        equal(run.status, RunStatus.COMPLETED, "status")
        assert run.output, "nothing came of it"


@suite.check
async def strangers_are_turned_away(target: Target) -> None:
    stranger = Target(target.url)
    async with stranger.client() as client:
        await refused(client.run_sync(HELLO, agent="echo"), "server_error")
