"""Every operation on runs, through the official client."""

import asyncio
import json
import time
from uuid import UUID, uuid4

from acp_sdk.models import (
    ACPError,
    ArtifactEvent,
    Event,
    Message,
    MessageAwaitResume,
    MessageCompletedEvent,
    MessageCreatedEvent,
    MessagePart,
    MessagePartEvent,
    Run,
    RunAwaitingEvent,
    RunCancelledEvent,
    RunCompletedEvent,
    RunCreatedEvent,
    RunFailedEvent,
    RunInProgressEvent,
    RunStatus,
)

from check import Suite, equal
from target import Target, refused, settled

suite = Suite("runs")

HELLO = [Message(parts=[MessagePart(content="Hello!")])]
NOTHING = MessageAwaitResume(message=Message(parts=[]))
# The time limit for the end of a cancelled run, in seconds.
CANCEL_LIMIT = 10.0
PARTS = (MessagePartEvent, ArtifactEvent)


def echoed(messages: list[Message], agent: str = "echo") -> list[Message]:
    return [message.model_copy(update={"role": f"agent/{agent}"}) for message in messages]


@suite.check
async def sync(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_sync(HELLO, agent="echo")
    equal(run.status, RunStatus.COMPLETED, "status")
    # The timestamps too, to the microsecond.
    equal(run.output, echoed(HELLO), "output")
    assert run.session_id is not None and run.finished_at is not None and run.finished_at >= run.created_at
    assert run.error is None and run.await_request is None
    run.raise_for_status()


@suite.check
async def sync_forms_of_input(target: Target) -> None:
    async with target.client() as client:
        for given, texts in [
            ("one", ["one"]),
            (["one", "two"], ["onetwo"]),
            (MessagePart(content="part"), ["part"]),
            (Message(parts=[MessagePart(content="message")]), ["message"]),
            ([], []),
        ]:
            run = await client.run_sync(given, agent="echo")
            equal([str(message) for message in run.output], texts, "output")


@suite.check
async def several_messages_and_roles(target: Target) -> None:
    messages = [
        Message(role="user", parts=[MessagePart(content="one"), MessagePart(content="two")]),
        Message(role="agent", parts=[MessagePart(content="three")]),
        Message(role="agent/other", parts=[MessagePart(content="four")]),
        Message(role="user", parts=[]),
        Message(role="user", parts=[MessagePart(content="five")], created_at=None, completed_at=None),
    ]
    async with target.client() as client:
        run = await client.run_sync(messages, agent="echo")
    equal(run.output, echoed(messages), "output")


@suite.check
async def every_kind_of_part(target: Target) -> None:
    messages = [
        Message(
            parts=[
                MessagePart(content="caf\u00e9 \U0001f600 \u0085\u2028\u2029 \"quoted\"\n\ttext"),
                MessagePart(content='{"a": [1, 2.50, "x"]}', content_type="application/json"),
                MessagePart(content="aGVsbG8=", content_type="image/png", content_encoding="base64"),
                MessagePart(content_url="https://example.org/picture.png?size=1#top", content_type="image/png"),
                MessagePart(content_url="data:text/plain,hello"),
                MessagePart(name="notes.txt", content="an artifact"),
                MessagePart(content=""),
                MessagePart(content="citation", metadata={"kind": "citation", "start_index": 0, "end_index": 4}),
                MessagePart(metadata={"kind": "citation", "url": "https://example.org/", "title": "An example"}),
                MessagePart(metadata={"kind": "trajectory", "message": "Thinking", "tool_name": "search"}),
                MessagePart(
                    metadata={"kind": "trajectory", "tool_name": "t", "tool_input": {"q": 1}, "tool_output": {"r": None}}
                ),
                MessagePart(content="extended", colour="red", nested={"deep": [True, None, 1.5]}),
            ]
        )
    ]
    async with target.client() as client:
        run = await client.run_sync(messages, agent="echo")
        equal(run.output, echoed(messages), "output")
        stream = [event async for event in client.run_stream(messages, agent="echo")]
    equal([event.part.model_dump() for event in stream if isinstance(event, PARTS)],
          [part.model_dump() for part in messages[0].parts], "streamed parts")
    equal(stream[-1].run.output, echoed(messages), "streamed output")


@suite.check
async def async_and_status(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_async(HELLO, agent="echo")
        equal((run.status, run.output, run.finished_at), (RunStatus.CREATED, [], None), "snapshot")
        run = await settled(client, run, RunStatus.COMPLETED)
    equal(run.output, echoed(HELLO), "output")


@suite.check
async def stream(target: Target) -> None:
    async with target.client() as client:
        events = [event async for event in client.run_stream(HELLO, agent="echo")]
    kinds = [type(event) for event in events]
    wanted = [
        RunCreatedEvent,
        RunInProgressEvent,
        MessageCreatedEvent,
        MessagePartEvent,
        MessageCompletedEvent,
        RunCompletedEvent,
    ]
    equal(kinds, wanted, "order of events")
    equal(events[0].run.status, RunStatus.CREATED, "first status")
    equal(events[1].run.status, RunStatus.IN_PROGRESS, "second status")
    equal(events[3].part.content, "Hello!", "part")
    equal(events[4].message, echoed(HELLO)[0], "message")
    equal(events[5].run.output, echoed(HELLO), "output")


@suite.check
async def messages_have_ids_that_the_client_ignores(target: Target) -> None:
    def named(message: dict[str, object]) -> str:
        return str(UUID(message["x_trilogue"]["message_id"]))

    async with target.client() as client, target.http() as http:
        run = await client.run_sync(HELLO, agent="echo")
        raw = (await http.get(f"runs/{run.run_id}")).json()
        ids = [named(message) for message in raw["output"]]
        equal(len(ids), 1, "number of messages")
        # The official models drop these members, so the comparison finds equal values.
        equal(Run.model_validate(raw), run, "run")
        equal(run.output, echoed(HELLO), "output")
        session = (await http.get(f"sessions/{run.session_id}")).json()
        kept = (await http.get(session["history"][-1])).json()
        equal((named(kept), kept), (ids[0], raw["output"][0]), "message of the history")
        equal(Message.model_validate(kept), run.output[0], "message of the history")
        body = {"agent_name": "echo", "mode": "stream", "input": [HELLO[0].model_dump(mode="json")]}
        lines = (await http.post("runs", json=body)).text.splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        told = [event for event in events if "message" in event]
        equal([event["type"] for event in told], ["message.created", "message.completed"], "events")
        equal(len({named(event["message"]) for event in told}), 1, "number of ids in the stream")
        equal(MessageCompletedEvent.model_validate(told[1]).message, echoed(HELLO)[0], "completed message")


@suite.check
async def a_message_that_is_sent_back_keeps_its_id(target: Target) -> None:
    async with target.http() as http:
        name = str(uuid4())
        message = {**HELLO[0].model_dump(mode="json"), "x_trilogue": {"message_id": name}}
        answer = await http.post("runs", json={"agent_name": "echo", "input": [message]})
        session = (await http.get(f"sessions/{answer.json()['session_id']}")).json()
        kept = (await http.get(session["history"][0])).json()
        equal((kept["x_trilogue"]["message_id"], session["history"][0].rsplit("/", 1)[1]), (name, name), "id")


@suite.check
async def events_are_the_stream(target: Target) -> None:
    async with target.client() as client:
        for agent in ["echo", "artifact_producer", "mime_types", "failer", "raiser", "awaiter"]:
            streamed = [event async for event in client.run_stream(HELLO, agent=agent)]
            run_id = streamed[0].run.run_id
            listed = [event async for event in client.run_events(run_id=run_id)]
            equal(listed, streamed, f"events of {agent}")


@suite.check
async def failures(target: Target) -> None:
    async with target.client() as client:
        for agent in ["failer", "raiser"]:
            run = await client.run_sync(HELLO, agent=agent)
            equal(run.status, RunStatus.FAILED, "status")
            equal(run.error.code, "invalid_input", "code")
            assert run.error.message and run.finished_at is not None
            try:
                run.raise_for_status()
            except ACPError as error:
                equal(error.error, run.error, "error")
            else:
                raise AssertionError("a failed run raised nothing")
            events = [event async for event in client.run_stream(HELLO, agent=agent)]
            assert isinstance(events[-1], RunFailedEvent), events[-1]
            equal(events[-1].run.error.code, "invalid_input", "code in the stream")
            equal((await client.run_status(run_id=run.run_id)).error, run.error, "error later")


async def cancelled(client, run_id, begun: float) -> None:
    run = await client.run_status(run_id=run_id)
    run = await settled(client, run, RunStatus.CANCELLED)
    elapsed = time.monotonic() - begun
    assert elapsed <= CANCEL_LIMIT, f"the cancelled run took {elapsed:.1f} s to end"
    assert run.finished_at is not None and run.error is None


@suite.check
async def cancel(target: Target) -> None:
    many = HELLO * 30
    async with target.client() as client:
        for agent in ["awaiter", "slow_echo"]:
            run = await client.run_async(many, agent=agent)
            begun = time.monotonic()
            run = await client.run_cancel(run_id=run.run_id)
            equal(run.status, RunStatus.CANCELLING, "answer")
            await cancelled(client, run.run_id, begun)
            error = await refused(client.run_cancel(run_id=run.run_id), "server_error")
            assert error.error.message


@suite.check
async def cancel_while_awaiting(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_sync(HELLO, agent="awaiter")
        equal(run.status, RunStatus.AWAITING, "status")
        begun = time.monotonic()
        equal((await client.run_cancel(run_id=run.run_id)).status, RunStatus.CANCELLING, "answer")
        await cancelled(client, run.run_id, begun)
        await refused(client.run_resume_sync(NOTHING, run_id=run.run_id), "server_error")


@suite.check
async def cancel_in_a_stream(target: Target) -> None:
    last: Event | None = None
    async with target.client() as client:
        async for event in client.run_stream(HELLO * 30, agent="slow_echo"):
            last = event
            if isinstance(event, RunCreatedEvent):
                run = await client.run_cancel(run_id=event.run.run_id)
                equal(run.status, RunStatus.CANCELLING, "answer")
    assert isinstance(last, RunCancelledEvent), last
    equal(last.run.status, RunStatus.CANCELLED, "status")


@suite.check
async def cancel_of_what_ended(target: Target) -> None:
    async with target.client() as client:
        for agent in ["echo", "failer"]:
            run = await client.run_sync(HELLO, agent=agent)
            await refused(client.run_cancel(run_id=run.run_id), "server_error")
            equal((await client.run_status(run_id=run.run_id)).status, run.status, "status")


async def waiting(client):
    run = await client.run_sync(HELLO, agent="awaiter")
    equal(run.status, RunStatus.AWAITING, "status")
    equal((run.await_request.type, run.await_request.message.parts), ("message", []), "request")
    equal(run.output, [], "output")
    assert run.finished_at is None
    return run


def answered(run) -> None:
    equal(run.status, RunStatus.COMPLETED, "status")
    equal([str(message) for message in run.output], ["empty"], "output")
    assert run.await_request is None, "the request is still shown"


@suite.check
async def resume_sync(target: Target) -> None:
    async with target.client() as client:
        run = await waiting(client)
        answered(await client.run_resume_sync(NOTHING, run_id=run.run_id))
        answered(await client.run_status(run_id=run.run_id))


@suite.check
async def resume_async(target: Target) -> None:
    async with target.client() as client:
        run = await waiting(client)
        run = await client.run_resume_async(NOTHING, run_id=run.run_id)
        equal(run.status, RunStatus.IN_PROGRESS, "status")
        answered(await settled(client, run, RunStatus.COMPLETED))


@suite.check
async def resume_stream(target: Target) -> None:
    async with target.client() as client:
        begun = [event async for event in client.run_stream(HELLO, agent="awaiter")]
        assert isinstance(begun[-1], RunAwaitingEvent), begun[-1]
        run_id = begun[-1].run.run_id
        ended = [event async for event in client.run_resume_stream(NOTHING, run_id=run_id)]
        assert isinstance(ended[0], RunInProgressEvent), ended[0]
        assert isinstance(ended[-1], RunCompletedEvent), ended[-1]
        answered(ended[-1].run)
        listed = [event async for event in client.run_events(run_id=run_id)]
        equal(listed, begun + ended, "events")


@suite.check
async def resume_of_what_does_not_wait(target: Target) -> None:
    async with target.client() as client:
        run = await waiting(client)
        answered(await client.run_resume_sync(NOTHING, run_id=run.run_id))
        await refused(client.run_resume_sync(NOTHING, run_id=run.run_id), "server_error")
        await refused(client.run_resume_async(NOTHING, run_id=run.run_id), "server_error")
        answered(await client.run_status(run_id=run.run_id))
        done = await client.run_sync(HELLO, agent="echo")
        await refused(client.run_resume_sync(NOTHING, run_id=done.run_id), "server_error")


@suite.check
async def one_of_several_answers_wins(target: Target) -> None:
    async with target.client() as client:
        run = await waiting(client)
        calls = [client.run_resume_async(NOTHING, run_id=run.run_id) for _ in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        taken = [each for each in answers if not isinstance(each, ACPError)]
        equal(len(taken), 1, "number of answers that were taken")
        answered(await settled(client, taken[0], RunStatus.COMPLETED))


@suite.check
async def unknown_run(target: Target) -> None:
    async with target.client() as client:
        nobody = uuid4()
        await refused(client.run_status(run_id=nobody), "not_found")
        await refused(client.run_cancel(run_id=nobody), "not_found")
        await refused(client.run_resume_sync(NOTHING, run_id=nobody), "not_found")
        await refused(client.run_status(run_id="no-uuid"), "invalid_input")

        async def events() -> list[Event]:
            return [event async for event in client.run_events(run_id=nobody)]

        await refused(events(), "not_found")


@suite.check
async def a_client_that_leaves_ends_nothing(target: Target) -> None:
    async with target.client() as client:
        events = client.run_stream(HELLO, agent="slow_echo")
        first = await anext(events)
        await events.aclose()
        run = await client.run_status(run_id=first.run.run_id)
        assert not run.status.is_terminal, run
        run = await settled(client, run, RunStatus.COMPLETED)
        equal(run.output, echoed(HELLO, "slow_echo"), "output")


@suite.check
async def many_at_once(target: Target) -> None:
    async with target.client() as client:
        runs = await asyncio.gather(*(client.run_sync(f"number {index}", agent="echo") for index in range(50)))
    equal([str(run.output[0]) for run in runs], [f"number {index}" for index in range(50)], "output")
    equal(len({run.run_id for run in runs}), 50, "number of runs")
