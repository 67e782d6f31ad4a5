"""Every operation on stateless runs."""

import asyncio
import time
from datetime import datetime, timedelta, timezone

from agntcy_acp import ConflictException, NotFoundException, UnprocessableEntityException
from agntcy_acp.models import AgentSearchRequest, RunSearchRequest, RunStatus

from asking import BLUE, COUNTER, HELP, ILL, INTERRUPT, MOCK, NOBODY, SKY, asked, counting, endless, human, stateless, talk
from check import Suite, equal
from target import Caller, Target, refused, settled

suite = Suite("stateless")

QUICK = {"pause_ms": 0}
SLOW = {"pause_ms": 300}
# The time limit for the end of a cancelled run, in seconds.
CANCEL_LIMIT = 5.0


async def looked(client: Caller, run, *wanted: RunStatus):
    return await settled(lambda: client.get_stateless_run(run.run_id), *wanted)


def output(answer, kind: str):
    """The output of a wait, which must be of this kind."""
    seen = answer.output.actual_instance
    equal(seen.type, kind, f"type of {seen!r}")
    return seen


@suite.check
async def create_stateless_run(target: Target) -> None:
    async with target.client() as client:
        before = datetime.now(timezone.utc) - timedelta(seconds=5)
        create = stateless(MOCK, SKY, SLOW, metadata={"k": "v"})
        run = await client.create_stateless_run(create)
        equal((run.status, run.agent_id), (RunStatus.PENDING, MOCK), "run")
        assert before < run.created_at <= run.updated_at, run
        # The response repeats the request, with the client's own defaults.
        equal(asked(run.creation), asked(create), "creation")
        done = await looked(client, run, RunStatus.SUCCESS)
        equal((asked(done.creation), done.created_at), (asked(create), run.created_at), "creation")
        assert done.updated_at >= run.updated_at, done


@suite.check
async def create_and_wait_for_stateless_run_output(target: Target) -> None:
    async with target.client() as client:
        answer = await client.create_and_wait_for_stateless_run_output(stateless(MOCK, SKY, QUICK))
        equal(answer.run.status, RunStatus.SUCCESS, "status")
        equal(output(answer, "result").values, BLUE, "values")
        text = "line\u2028paragraph\u2029next\u0085end \U0001f980 \"quoted\" \\ é"
        answer = await client.create_and_wait_for_stateless_run_output(stateless(target.echo, human(text)))
        equal(output(answer, "result").values, talk(text, text), "values")


@suite.check
async def an_error_is_an_output(target: Target) -> None:
    async with target.client() as client:
        answer = await client.create_and_wait_for_stateless_run_output(stateless(MOCK, ILL))
        equal(answer.run.status, RunStatus.ERROR, "status")
        error = output(answer, "error")
        equal(error.run_id, answer.run.run_id, "run id")
        assert "error input: " in error.description and ILL["message"] in error.description, error
        equal(error.errcode, 1, "number")


@suite.check
async def get_stateless_run(target: Target) -> None:
    async with target.client() as client:
        run = await client.create_stateless_run(stateless(target.echo, human("hi")))
        done = await looked(client, run, RunStatus.SUCCESS)
        equal(done.run_id, run.run_id, "run id")
        for unknown in [NOBODY, "no-uuid"]:
            await refused(client.get_stateless_run(unknown), NotFoundException)


@suite.check
async def wait_for_stateless_run_output(target: Target) -> None:
    async with target.client() as client:
        run = await client.create_stateless_run(stateless(MOCK, SKY, SLOW))
        # Three waits at once, and one more afterwards: a wait can be repeated.
        waits = [client.wait_for_stateless_run_output(run.run_id) for _ in range(3)]
        answers = [*await asyncio.gather(*waits), await client.wait_for_stateless_run_output(run.run_id)]
        for answer in answers:
            equal(output(answer, "result").values, BLUE, "values")
            equal((answer.run.run_id, answer.run.status), (run.run_id, RunStatus.SUCCESS), "run")
        await refused(client.wait_for_stateless_run_output(NOBODY), NotFoundException)


@suite.check
async def a_wait_with_a_limit_gives_nothing(target: Target) -> None:
    async with target.client() as client:
        run = await client.create_stateless_run(stateless(COUNTER, endless()))
        answer = await target.raw("GET", f"/runs/{run.run_id}/wait?timeout=0.1")
        equal((answer.status, answer.body), (204, b""), "answer")
        equal((await client.get_stateless_run(run.run_id)).status, RunStatus.PENDING, "status")
        await client.cancel_stateless_run(run.run_id)


@suite.check
async def resume_stateless_run(target: Target) -> None:
    async with target.client() as client:
        answer = await client.create_and_wait_for_stateless_run_output(stateless(MOCK, INTERRUPT))
        run = answer.run
        equal(run.status, RunStatus.INTERRUPTED, "status")
        equal(output(answer, "interrupt").interrupt, {"mock_interrupt": HELP}, "interrupt")
        await refused(client.resume_stateless_run(run.run_id, {"nope": 1}), UnprocessableEntityException)
        equal((await client.get_stateless_run(run.run_id)).status, RunStatus.INTERRUPTED, "status")
        resumed = await client.resume_stateless_run(run.run_id, {"message": "a hand"})
        equal((resumed.run_id, resumed.status), (run.run_id, RunStatus.PENDING), "run")
        answer = await client.wait_for_stateless_run_output(run.run_id)
        equal(output(answer, "result").values, {"message": "a hand"}, "values")
        await refused(client.resume_stateless_run(run.run_id, {"message": "x"}), ConflictException)
        await refused(client.resume_stateless_run(NOBODY, {"message": "x"}), NotFoundException)


@suite.check
async def every_encoding_of_an_answer(target: Target) -> None:
    answer = {"message": "so"}
    async with target.client() as client:
        for body in [
            answer,
            {"mock_interrupt": answer},
            {"interrupt_type": "mock_interrupt", "resume_payload": answer},
        ]:
            run = (await client.create_and_wait_for_stateless_run_output(stateless(MOCK, INTERRUPT))).run
            await client.resume_stateless_run(run.run_id, body)
            ended = await client.wait_for_stateless_run_output(run.run_id)
            equal(output(ended, "result").values, answer, f"values after {body}")


@suite.check
async def one_of_several_answers_wins(target: Target) -> None:
    async with target.client() as client:
        run = (await client.create_and_wait_for_stateless_run_output(stateless(MOCK, INTERRUPT))).run
        calls = [client.resume_stateless_run(run.run_id, {"message": str(number)}) for number in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        lost = [each for each in answers if isinstance(each, ConflictException)]
        equal(len(lost), 4, f"number of answers that lost in {answers}")


@suite.check
async def cancel_stateless_run(target: Target) -> None:
    async with target.client() as client:
        for options in [{}, {"wait": True}, {"wait": True, "action": "interrupt"}, {"wait": False}]:
            run = await client.create_stateless_run(stateless(COUNTER, endless()))
            begun = time.monotonic()
            equal(await client.cancel_stateless_run(run.run_id, **options), None, "answer")
            if options.get("wait"):
                equal((await client.get_stateless_run(run.run_id)).status, RunStatus.ERROR, "status")
            await looked(client, run, RunStatus.ERROR)
            assert time.monotonic() - begun < CANCEL_LIMIT, "the cancelled run went on"
            answer = await client.wait_for_stateless_run_output(run.run_id)
            equal(output(answer, "error").errcode, 5, "number")
            # The same again changes nothing.
            equal(await client.cancel_stateless_run(run.run_id, wait=True), None, "answer")
        await refused(client.cancel_stateless_run(NOBODY), NotFoundException)


@suite.check
async def cancel_with_rollback(target: Target) -> None:
    async with target.client() as client:
        run = await client.create_stateless_run(stateless(COUNTER, endless()))
        waiting = asyncio.create_task(client.wait_for_stateless_run_output(run.run_id))
        # The test cannot see when the wait has found its run.
        await asyncio.sleep(0.5)
        equal(await client.cancel_stateless_run(run.run_id, wait=True, action="rollback"), None, "answer")
        equal(output(await waiting, "error").errcode, 6, "number")
        await refused(client.get_stateless_run(run.run_id), NotFoundException)


@suite.check
async def delete_stateless_run(target: Target) -> None:
    async with target.client() as client:
        done = (await client.create_and_wait_for_stateless_run_output(stateless(target.echo, human("x")))).run
        equal(await client.delete_stateless_run(done.run_id), None, "answer")
        await refused(client.get_stateless_run(done.run_id), NotFoundException)
        await refused(client.wait_for_stateless_run_output(done.run_id), NotFoundException)
        await refused(client.delete_stateless_run(done.run_id), NotFoundException)
        running = await client.create_stateless_run(stateless(COUNTER, endless()))
        equal(await client.delete_stateless_run(running.run_id), None, "answer")
        await refused(client.get_stateless_run(running.run_id), NotFoundException)


@suite.check
async def search_stateless_runs(target: Target) -> None:
    async with target.client() as client:
        mark = {"mark": f"{time.monotonic_ns()}", "client": "async" if client.is_async else "sync"}
        made = []
        for agent, input in [(MOCK, INTERRUPT), (target.echo, human("x")), (MOCK, ILL), (target.echo, human("y"))]:
            create = stateless(agent, input, metadata=mark | {"nested": {"n": len(made)}})
            made.append((await client.create_and_wait_for_stateless_run_output(create)).run.run_id)

        async def found(**request: object) -> list[int]:
            runs = await client.search_stateless_runs(RunSearchRequest(metadata=mark, **request))
            return [made.index(run.run_id) for run in runs]

        equal(await found(), [3, 2, 1, 0], "newest first")
        equal(await found(agent_id=target.echo), [3, 1], "by agent")
        equal(await found(status=RunStatus.INTERRUPTED), [0], "by status")
        equal(await found(status=RunStatus.ERROR, agent_id=MOCK), [2], "by both")
        equal(await found(limit=2), [3, 2], "first page")
        equal(await found(limit=2, offset=2), [1, 0], "second page")
        equal(await found(offset=4), [], "beyond the last")
        nested = await client.search_stateless_runs(RunSearchRequest(metadata=mark | {"nested": {"n": 1}}))
        equal([run.run_id for run in nested], [made[1]], "by nested metadata")
        nothing = await client.search_stateless_runs(RunSearchRequest(metadata={"mark": "other"}))
        equal(nothing, [], "runs of another mark")


@suite.check
async def what_does_not_fit_is_refused(target: Target) -> None:
    async with target.client() as client:
        for create in [
            stateless(MOCK, {"message": 5}),
            stateless(MOCK, {}),
            stateless(MOCK, None),
            stateless(target.echo, {"messages": [], "more": 1}),
            stateless(target.echo, human("x"), {"to_upper": "yes"}),
            stateless(MOCK, SKY, {"pause_ms": -1}),
            stateless(MOCK, SKY, QUICK, webhook="no address"),
            stateless(MOCK, SKY, QUICK, webhook="http://127.0.0.1:9/private"),
            stateless(MOCK, SKY, QUICK, after_seconds=-1),
        ]:
            await refused(client.create_stateless_run(create), UnprocessableEntityException)
            await refused(client.create_and_wait_for_stateless_run_output(create), UnprocessableEntityException)
        error = await refused(client.create_stateless_run(stateless(MOCK, {"message": 5})), UnprocessableEntityException)
        assert "/message" in str(error.data), f"the error does not say where: {error.data}"
        await refused(client.create_stateless_run(stateless(NOBODY, SKY)), NotFoundException)


@suite.check
async def a_run_without_an_agent_is_one_of_the_first(target: Target) -> None:
    async with target.client() as client:
        first = (await client.search_agents(AgentSearchRequest(limit=1)))[0]
        run = await client.create_stateless_run(stateless(None, {"message": "hi"}))
        equal(run.agent_id, first.agent_id, "agent")


@suite.check
async def after_seconds(target: Target) -> None:
    async with target.client() as client:
        begun = time.monotonic()
        run = await client.create_stateless_run(stateless(target.echo, human("x"), after_seconds=1))
        equal((run.status, run.creation.after_seconds), (RunStatus.PENDING, 1), "run")
        await client.wait_for_stateless_run_output(run.run_id)
        assert time.monotonic() - begun > 0.9, "the run did not wait"
        run = await client.create_stateless_run(stateless(target.echo, human("x"), after_seconds=3600))
        equal(await client.cancel_stateless_run(run.run_id, wait=True), None, "answer")
        await looked(client, run, RunStatus.ERROR)


@suite.check
async def on_completion(target: Target) -> None:
    async with target.client() as client:
        kept = await client.create_and_wait_for_stateless_run_output(
            stateless(target.echo, human("x"), on_completion="keep")
        )
        thread = await client.get_thread(kept.run.thread_id)
        equal((thread.thread_id, thread.values), (kept.run.thread_id, target.undeclared(talk("x", "x"))), "thread")
        gone = await client.create_and_wait_for_stateless_run_output(stateless(target.echo, human("x")))
        if gone.run.thread_id is not None:
            await refused(client.get_thread(gone.run.thread_id), NotFoundException)
        # The run itself can still be read.
        equal((await client.get_stateless_run(gone.run.run_id)).status, RunStatus.SUCCESS, "status")


@suite.check
async def on_disconnect(target: Target) -> None:
    """A client that disconnects cancels its run, unless its request says otherwise."""
    async with target.client() as client:

        async def give_up(mode: str, count: dict, ends: RunStatus) -> None:
            mark = {"mark": f"{mode} {time.monotonic_ns()}"}
            create = stateless(COUNTER, count, metadata=mark, on_disconnect=mode)
            try:
                await client.create_and_wait_for_stateless_run_output(create, _request_timeout=0.9)
            except Exception as error:
                assert "imeout" in repr(error) or "timed out" in repr(error), repr(error)
            else:
                raise AssertionError("the wait did not give up")
            found = await client.search_stateless_runs(RunSearchRequest(metadata=mark))
            equal(len(found), 1, "number of runs")
            await looked(client, found[0], ends)

        await asyncio.gather(
            give_up("cancel", endless(), RunStatus.ERROR),
            give_up("continue", counting(50, 25), RunStatus.SUCCESS),
        )


@suite.check
async def many_at_once(target: Target) -> None:
    async with target.client() as client:
        calls = [
            client.create_and_wait_for_stateless_run_output(stateless(target.echo, human(f"number {number}")))
            for number in range(30)
        ]
        answers = await asyncio.gather(*calls)
    said = [output(answer, "result").values["messages"][-1]["content"] for answer in answers]
    equal(said, [f"number {number}" for number in range(30)], "output")
    equal(len({answer.run.run_id for answer in answers}), 30, "number of runs")
