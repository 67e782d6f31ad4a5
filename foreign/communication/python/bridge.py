"""An agent of any kind that does what its prompts say, through the official client, helped by the other protocols."""

from uuid import uuid4

from acp_sdk.client import Client
from acp_sdk.models import (
    Event,
    Message,
    MessageAwaitResume,
    MessagePart,
    MessagePartEvent,
    RunAwaitingEvent,
    RunCompletedEvent,
    RunFailedEvent,
    RunStatus,
    Session,
)

from check import Suite, equal
from target import Target, settled
from words import COUNTED, FAILURE, PIXEL

suite = Suite("bridge")


def has_faces(target: Target) -> bool:
    """Whether other protocols can help: not if the agent's own server is driven."""
    return target.faces is not None


# The protocol that answers, cancels and begins runs in place of this client.
OTHER = "connect"


def said(text: str) -> list[Message]:
    return [Message(parts=[MessagePart(content=text)])]


async def streamed(client: Client, agent: str, text: str) -> list[Event]:
    return [event async for event in client.run_stream(said(text), agent=agent)]


def whole(output: list[Message]) -> str:
    return "".join(str(message) for message in output)


@suite.check
async def text(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_sync(said("say:Howdy, partner!"), agent=target.agent)
        equal((run.status, whole(run.output)), (RunStatus.COMPLETED, "Howdy, partner!"), "answer")
        equal(run.output[0].role, f"agent/{target.agent}", "role")


@suite.check
async def streaming(target: Target) -> None:
    async with target.client() as client:
        events = await streamed(client, target.agent, "count:5")
        pieces = [event.part.content for event in events if isinstance(event, MessagePartEvent)]
        assert len(pieces) > 1, f"nothing was streamed: {pieces}"
        equal("".join(pieces), COUNTED, "pieces")
        assert isinstance(events[-1], RunCompletedEvent), events[-1]
        equal(whole(events[-1].run.output), COUNTED, "whole")


@suite.check
async def image(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_sync(said("image"), agent=target.agent)
        images = [part for message in run.output for part in message.parts if part.content_type == "image/png"]
        equal([(part.content_encoding, part.content) for part in images], [("base64", PIXEL)], "images")


@suite.check_if(has_faces)
async def question(target: Target) -> None:
    session = Session(id=uuid4())
    async with target.client() as client, client.session(session) as within:
        events = [event async for event in within.run_stream(said("ask"), agent=target.agent)]
        assert isinstance(events[-1], RunAwaitingEvent), events[-1]
        run = events[-1].run
        assert run.await_request.message.parts, "the request says nothing"
        heard = await target.faces.answer_through(OTHER, str(session.id))
        run = await settled(client, run, RunStatus.COMPLETED)
        assert "heard" in whole(run.output) and heard in whole(run.output), run.output


@suite.check_if(has_faces)
async def question_answered_here(target: Target) -> None:
    async with target.client() as client, client.session(Session(id=uuid4())) as within:
        events = [event async for event in within.run_stream(said("ask"), agent=target.agent)]
        run_id = events[-1].run.run_id
        session = str(events[-1].run.session_id)
        words, heard = await target.faces.words_for(session)
        resume = MessageAwaitResume(message=Message(parts=[MessagePart(content=words)]))
        rest = [event async for event in client.run_resume_stream(resume, run_id=run_id)]
        assert isinstance(rest[-1], RunCompletedEvent), rest[-1]
        assert heard in whole(rest[-1].run.output), rest[-1].run.output


@suite.check_if(has_faces)
async def cancellation(target: Target) -> None:
    session = Session(id=uuid4())
    async with target.client() as client, client.session(session) as within:
        run = await within.run_async(said("slow"), agent=target.agent)
        await target.faces.cancel_through(OTHER, str(session.id))
        await settled(client, run, RunStatus.CANCELLED)


@suite.check
async def error(target: Target) -> None:
    async with target.client() as client:
        events = await streamed(client, target.agent, "fail")
        assert isinstance(events[-1], RunFailedEvent), events[-1]
        assert FAILURE in events[-1].run.error.message, events[-1].run.error


@suite.check_if(has_faces)
async def memory(target: Target) -> None:
    session = Session(id=uuid4())
    await target.faces.say_through(OTHER, target.agent, str(session.id), "say:my name is Ada")
    async with target.client() as client, client.session(session) as within:
        run = await within.run_sync(said("recall"), agent=target.agent)
        assert "my name is Ada" in whole(run.output), run.output
