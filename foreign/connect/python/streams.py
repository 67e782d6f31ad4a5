"""Every operation that streams, and the rules of streams."""

import asyncio

from agntcy_acp import ConflictException, NotFoundException, UnprocessableEntityException
from agntcy_acp.models import RunStatus, ThreadCreate

from asking import COUNTER, HELP, ILL, INTERRUPT, MOCK, NOBODY, counting, endless, human, stateful, stateless, talk
from check import Suite, equal
from target import Event, Target, once, refused, settled

suite = Suite("streams")


def terminal(events: list[Event], kind: str, status: str) -> Event:
    """The last event, which must be the only one that ends a stream."""
    ends = [event for event in events if event.status != "pending"]
    equal(ends, events[-1:], "events that end the stream")
    equal((ends[0].type, ends[0].status), (kind, status), f"end of {events}")
    return ends[0]


def whole_values(events: list[Event], count: int) -> None:
    """A stream of the counter in values: each replaces the one before, and the last is the result."""
    equal({event.type for event in events}, {"values"}, "types")
    counts = [event.data["values"]["count"] for event in events]
    equal(counts, sorted(counts), "counts")
    equal(events[0].status, "pending", "status of the first")
    equal(terminal(events, "values", "success").data["values"], {"count": count}, "values")
    equal(len({event.data["run_id"] for event in events}), 1, "number of runs")


def whole_updates(events: list[Event], count: int) -> None:
    """A stream of the counter in updates: every one, in order."""
    equal({event.type for event in events[:-1]}, {"custom"}, "types")
    steps = [event.data["update"]["step"] for event in events[:-1]]
    equal(steps, list(range(1, count + 1)), "steps")
    terminal(events, "values", "success")


@suite.check
async def create_and_stream_stateless_run_output(target: Target) -> None:
    async with target.client() as client:
        # Long enough that its steps are stored one after the other, even on a slow machine.
        creates = [stateless(COUNTER, counting(20, 30), stream_mode=mode) for mode in [None, "values", ["values"]]]
        calls = [client.stream("create_and_stream_stateless_run_output", create) for create in creates]
        for events in await asyncio.gather(*calls):
            whole_values(events, 20)
            assert len(events) > 2, f"nothing was streamed: {events}"
            run = await client.get_stateless_run(events[0].data["run_id"])
            equal(run.status, RunStatus.SUCCESS, "status")


@suite.check
async def updates_of_the_agent(target: Target) -> None:
    async with target.client() as client:
        create = stateless(COUNTER, counting(20), stream_mode="custom")
        whole_updates(await client.stream("create_and_stream_stateless_run_output", create), 20)
        create = stateless(COUNTER, counting(20, 5), stream_mode=["values", "custom"])
        events = await client.stream("create_and_stream_stateless_run_output", create)
        whole_updates([event for event in events if event.type == "custom"] + events[-1:], 20)
        whole_values([event for event in events if event.type == "values"], 20)
        # A sample never comes before the updates that it contains.
        step = 0
        for event in events:
            if event.type == "custom":
                step = event.data["update"]["step"]
            else:
                assert event.data["values"]["count"] <= step + 1, events


@suite.check
async def one_step_is_pending_first(target: Target) -> None:
    """The echo agent declares no streaming; its values are streamed anyway."""
    async with target.client() as client:
        text = "line\u2028paragraph\u2029next\u0085 \U0001f980 é"
        create = stateless(target.echo, human(text))
        events = await client.stream("create_and_stream_stateless_run_output", create)
        equal((events[0].type, events[0].status), ("values", "pending"), "first event")
        equal(events[0].data["values"], talk(text, text), "values")
        equal(terminal(events, "values", "success").data["values"], talk(text, text), "values")


@suite.check
async def interrupts_and_errors(target: Target) -> None:
    async with target.client() as client:
        events = await client.stream("create_and_stream_stateless_run_output", stateless(MOCK, INTERRUPT))
        end = terminal(events, "interrupt", "interrupted")
        equal(end.data["interrupt"], {"mock_interrupt": HELP}, "interrupt")
        run_id = end.data["run_id"]
        # A second stream has the same end; after the answer, the run continues.
        again = await client.stream("stream_stateless_run_output", run_id)
        equal(terminal(again, "interrupt", "interrupted").data, end.data, "end")
        await client.resume_stateless_run(run_id, {"message": "so"})
        rest = await client.stream("stream_stateless_run_output", run_id)
        equal(terminal(rest, "values", "success").data["values"], {"message": "so"}, "values")

        events = await client.stream("create_and_stream_stateless_run_output", stateless(MOCK, ILL))
        end = terminal(events, "error", "error")
        equal(end.data["errcode"], 1, "number")
        assert "error input: " in end.data["description"], end


@suite.check
async def stream_stateless_run_output(target: Target) -> None:
    async with target.client() as client:
        run = await client.create_stateless_run(stateless(COUNTER, counting(5, 50)))
        joined = await asyncio.gather(*(client.stream("stream_stateless_run_output", run.run_id) for _ in range(3)))
        for events in joined:
            equal(terminal(events, "values", "success").data["values"], {"count": 5}, "values")
        # A run that has ended sends its end at once.
        events = await client.stream("stream_stateless_run_output", run.run_id)
        equal(len(events), 1, f"number of events of {events}")
        equal(terminal(events, "values", "success").data, joined[0][-1].data, "end")
        await refused(client.stream("stream_stateless_run_output", NOBODY), NotFoundException)


@suite.check
async def a_cancelled_run_ends_its_stream(target: Target) -> None:
    async with target.client() as client:
        for action, number in [("interrupt", 5), ("rollback", 6)]:
            run = await client.create_stateless_run(stateless(COUNTER, endless()))
            stream = client.client.stream_stateless_run_output(run.run_id)
            # A client that has received an event has joined.
            first = await client.first(stream)
            reading = asyncio.create_task(client.rest(stream))
            await client.cancel_stateless_run(run.run_id, wait=True, action=action)
            end = terminal(once([first, *await reading]), "error", "error")
            equal(end.data["errcode"], number, "number")


@suite.check
async def create_and_stream_thread_run_output(target: Target) -> None:
    async with target.client() as client:
        thread_id = (await client.create_thread(ThreadCreate())).thread_id
        for total in [5, 10]:
            create = stateful(COUNTER, counting(5))
            events = await client.stream("create_and_stream_thread_run_output", thread_id, create)
            equal(terminal(events, "values", "success").data["values"], {"count": 5}, "values")
            equal((await client.get_thread(thread_id)).values, {"total": total}, "values")
        create = stateful(COUNTER, counting(3), stream_mode="custom", stream_subgraphs=True)
        whole_updates(await client.stream("create_and_stream_thread_run_output", thread_id, create), 3)
        call = client.stream("create_and_stream_thread_run_output", NOBODY, create)
        await refused(call, NotFoundException)


@suite.check
async def stream_thread_run_output(target: Target) -> None:
    async with target.client() as client:
        thread_id = (await client.create_thread(ThreadCreate())).thread_id
        other = (await client.create_thread(ThreadCreate())).thread_id
        create = stateful(COUNTER, counting(5, 30), stream_mode=["values", "custom"])
        run = await client.create_thread_run(thread_id, create)
        events = await client.stream("stream_thread_run_output", thread_id, run.run_id)
        equal(terminal(events, "values", "success").data["values"], {"count": 5}, "values")
        await refused(client.stream("stream_thread_run_output", other, run.run_id), NotFoundException)


@suite.check
async def a_mode_that_the_agent_has_not_is_refused(target: Target) -> None:
    async with target.client() as client:
        create = stateless(target.echo, human("x"), stream_mode="custom")
        call = client.stream("create_and_stream_stateless_run_output", create)
        await refused(call, UnprocessableEntityException)


@suite.check
async def what_does_not_fit_is_refused_before_it_streams(target: Target) -> None:
    async with target.client() as client:
        create = stateless(COUNTER, {"count": "many"})
        await refused(client.stream("create_and_stream_stateless_run_output", create), UnprocessableEntityException)
        await refused(
            client.stream("create_and_stream_stateless_run_output", stateless(NOBODY, {})), NotFoundException
        )
        thread_id = (await client.create_thread(ThreadCreate())).thread_id
        run = await client.create_thread_run(thread_id, stateful(COUNTER, endless()))
        call = client.stream("create_and_stream_thread_run_output", thread_id, stateful(COUNTER, counting(1)))
        await refused(call, ConflictException)
        await client.cancel_thread_run(thread_id, run.run_id, wait=True)


@suite.check
async def a_reader_that_leaves_cancels_its_run(target: Target) -> None:
    async with target.client() as client:
        create = stateless(COUNTER, endless())
        stream = client.client.create_and_stream_stateless_run_output(create)
        first = await client.first(stream)
        if client.is_async:
            await stream.aclose()
        else:
            stream.close()
        run_id = first.data.to_dict()["run_id"]
    # The client keeps its connection until the client itself is closed.
    async with target.client() as client:
        await settled(lambda: client.get_stateless_run(run_id), RunStatus.ERROR)


@suite.check
async def a_joiner_that_leaves_cancels_nothing(target: Target) -> None:
    async with target.client() as client:
        run = await client.create_stateless_run(stateless(COUNTER, counting(20, 25)))
        async with target.client() as joiner:
            stream = joiner.client.stream_stateless_run_output(run.run_id)
            await joiner.first(stream)
            if joiner.is_async:
                await stream.aclose()
            else:
                stream.close()
        await settled(lambda: client.get_stateless_run(run.run_id), RunStatus.SUCCESS)


@suite.check
async def a_stream_goes_on_where_it_was_left(target: Target) -> None:
    """Uses plain requests, because the client cannot resume; the ids that it returned are enough for that."""
    async with target.client() as client:
        create = stateless(COUNTER, counting(10), stream_mode="custom")
        events = await client.stream("create_and_stream_stateless_run_output", create)
        run_id = events[0].data["run_id"]
        for index, event in enumerate(events):
            rest = await read(target, f"/runs/{run_id}/stream", event.id)
            equal([each[0] for each in rest], [each.id for each in events[index + 1 :]], f"ids after {event.id}")


async def read(target: Target, path: str, after: str) -> list[tuple[str, str]]:
    """Ids and data of a stream that is resumed after this event."""
    answer = await target.raw("GET", path, headers={"last-event-id": after})
    equal(answer.status, 200, "status")
    events, current = [], {}
    for line in answer.body.decode("ascii").split("\n"):
        if line.startswith(":"):
            continue
        if not line:
            if current:
                events.append((current["id"], current["data"]))
            current = {}
            continue
        name, _, value = line.partition(": ")
        current[name] = value
    return events


