"""Every operation on runs of threads."""

import asyncio
import time
from uuid import uuid4

from agntcy_acp import ConflictException, NotFoundException, UnprocessableEntityException
from agntcy_acp.models import RunStatus, ThreadCreate, ThreadStatus

from asking import COUNTER, HELP, ILL, INTERRUPT, MOCK, NOBODY, asked, counting, endless, human, stateful, talk
from check import Suite, equal
from target import Caller, Target, refused, settled

suite = Suite("thread_runs")


async def new_thread(client: Caller) -> str:
    return (await client.create_thread(ThreadCreate())).thread_id


async def looked(client: Caller, run, *wanted: RunStatus):
    return await settled(lambda: client.get_thread_run(run.thread_id, run.run_id), *wanted)


@suite.check
async def create_thread_run(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        create = stateful(target.echo, human("hi"), {"to_upper": True}, metadata={"k": "v"})
        run = await client.create_thread_run(thread_id, create)
        equal((run.status, run.thread_id, run.agent_id), (RunStatus.PENDING, thread_id, target.echo), "run")
        equal(asked(run.creation), asked(create), "creation")
        done = await looked(client, run, RunStatus.SUCCESS)
        equal(asked(done.creation), asked(create), "creation")
        equal((await client.get_thread(thread_id)).values, target.undeclared(talk("hi", "HI")), "values")


@suite.check
async def if_not_exists(target: Target) -> None:
    async with target.client() as client:
        name = str(uuid4())
        await refused(client.create_thread_run(name, stateful(target.echo, human("x"))), NotFoundException)
        await refused(client.get_thread(name), NotFoundException)
        create = stateful(target.echo, human("x"), if_not_exists="create")
        answer = await client.create_and_wait_for_thread_run_output(name, create)
        equal((answer.run.thread_id, answer.run.status), (name, RunStatus.SUCCESS), "run")
        equal((await client.get_thread(name)).thread_id, name, "thread")


@suite.check
async def create_and_wait_for_thread_run_output(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        for agent, input, kind, status, thread_status in [
            (target.echo, human("hi"), "result", RunStatus.SUCCESS, ThreadStatus.IDLE),
            (MOCK, INTERRUPT, "interrupt", RunStatus.INTERRUPTED, ThreadStatus.INTERRUPTED),
            (MOCK, ILL, "error", RunStatus.ERROR, ThreadStatus.ERROR),
            (target.echo, human("hi"), "result", RunStatus.SUCCESS, ThreadStatus.IDLE),
        ]:
            answer = await client.create_and_wait_for_thread_run_output(thread_id, stateful(agent, input))
            equal((answer.output.actual_instance.type, answer.run.status), (kind, status), "answer")
            equal((await client.get_thread(thread_id)).status, thread_status, "status of the thread")


@suite.check
async def get_thread_run(target: Target) -> None:
    async with target.client() as client:
        thread_id, other = await new_thread(client), await new_thread(client)
        run = await client.create_thread_run(thread_id, stateful(target.echo, human("x")))
        equal((await client.get_thread_run(thread_id, run.run_id)).run_id, run.run_id, "run")
        for call in [
            client.get_thread_run(other, run.run_id),
            client.get_thread_run(NOBODY, run.run_id),
            client.get_thread_run(thread_id, NOBODY),
        ]:
            await refused(call, NotFoundException)


@suite.check
async def wait_for_thread_run_output(target: Target) -> None:
    async with target.client() as client:
        thread_id, other = await new_thread(client), await new_thread(client)
        run = await client.create_thread_run(thread_id, stateful(COUNTER, counting(5, 20)))
        for _ in range(2):
            answer = await client.wait_for_thread_run_output(thread_id, run.run_id)
            equal(answer.output.actual_instance.values, {"count": 5}, "values")
        await refused(client.wait_for_thread_run_output(other, run.run_id), NotFoundException)


@suite.check
async def list_thread_runs(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        equal(await client.list_thread_runs(thread_id), [], "runs")
        made = []
        for number in range(12):
            create = stateful(COUNTER, counting(number))
            made.append((await client.create_and_wait_for_thread_run_output(thread_id, create)).run.run_id)

        async def listed(**page: int) -> list[int]:
            return [made.index(run.run_id) for run in await client.list_thread_runs(thread_id, **page)]

        equal(await listed(), list(range(11, 1, -1)), "runs")
        equal(await listed(limit=3), [11, 10, 9], "runs")
        equal(await listed(limit=10, offset=10), [1, 0], "runs")
        await refused(client.list_thread_runs(NOBODY), NotFoundException)


@suite.check
async def resume_thread_run(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        answer = await client.create_and_wait_for_thread_run_output(thread_id, stateful(MOCK, INTERRUPT))
        run = answer.run
        equal(answer.output.actual_instance.interrupt, {"mock_interrupt": HELP}, "interrupt")
        again = await client.wait_for_thread_run_output(thread_id, run.run_id)
        equal(again.output.actual_instance.interrupt, {"mock_interrupt": HELP}, "interrupt")
        await refused(client.resume_thread_run(thread_id, run.run_id, {"nope": 1}), UnprocessableEntityException)
        await refused(client.resume_thread_run(NOBODY, run.run_id, {"message": "x"}), NotFoundException)
        resumed = await client.resume_thread_run(thread_id, run.run_id, {"message": "so"})
        equal((resumed.run_id, resumed.status), (run.run_id, RunStatus.PENDING), "run")
        answer = await client.wait_for_thread_run_output(thread_id, run.run_id)
        equal(answer.output.actual_instance.values, {"message": "so"}, "values")
        await refused(client.resume_thread_run(thread_id, run.run_id, {"message": "x"}), ConflictException)


@suite.check
async def a_newer_run_supersedes_a_waiting_one(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        old = await client.create_and_wait_for_thread_run_output(thread_id, stateful(MOCK, INTERRUPT))
        new = await client.create_and_wait_for_thread_run_output(thread_id, stateful(target.echo, human("x")))
        equal(new.run.status, RunStatus.SUCCESS, "status")
        call = client.resume_thread_run(thread_id, old.run.run_id, {"message": "too late"})
        await refused(call, ConflictException)


@suite.check
async def cancel_thread_run(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        await client.create_and_wait_for_thread_run_output(thread_id, stateful(COUNTER, counting(3)))
        run = await client.create_thread_run(thread_id, stateful(COUNTER, endless()))
        equal(await client.cancel_thread_run(thread_id, run.run_id, wait=True), None, "answer")
        equal((await client.get_thread_run(thread_id, run.run_id)).status, RunStatus.ERROR, "status")
        thread = await client.get_thread(thread_id)
        equal((thread.status, thread.values), (ThreadStatus.IDLE, {"total": 3}), "thread")
        run = await client.create_thread_run(thread_id, stateful(COUNTER, endless()))
        await client.cancel_thread_run(thread_id, run.run_id, wait=True, action="rollback")
        await refused(client.get_thread_run(thread_id, run.run_id), NotFoundException)
        equal((await client.get_thread(thread_id)).values, {"total": 3}, "values")
        await refused(client.cancel_thread_run(thread_id, NOBODY), NotFoundException)
        # A waiting run can be cancelled too.
        run = (await client.create_and_wait_for_thread_run_output(thread_id, stateful(MOCK, INTERRUPT))).run
        await client.cancel_thread_run(thread_id, run.run_id, wait=True)
        equal((await client.get_thread(thread_id)).status, ThreadStatus.IDLE, "status")


@suite.check
async def rollback_undoes_a_finished_run(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        for count in [2, 3]:
            answer = await client.create_and_wait_for_thread_run_output(thread_id, stateful(COUNTER, counting(count)))
        # The run has ended: cancelling it has no effect and is allowed.
        equal(await client.cancel_thread_run(thread_id, answer.run.run_id, wait=True), None, "answer")
        equal((await client.get_thread(thread_id)).values, {"total": 5}, "values")


@suite.check
async def delete_thread_run(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        answer = await client.create_and_wait_for_thread_run_output(thread_id, stateful(COUNTER, counting(3)))
        run_id = answer.run.run_id
        await refused(client.delete_thread_run(NOBODY, run_id), NotFoundException)
        equal(await client.delete_thread_run(thread_id, run_id), None, "answer")
        await refused(client.get_thread_run(thread_id, run_id), NotFoundException)
        await refused(client.delete_thread_run(thread_id, run_id), NotFoundException)
        equal(await client.list_thread_runs(thread_id), [], "runs")
        running = await client.create_thread_run(thread_id, stateful(COUNTER, endless()))
        equal(await client.delete_thread_run(thread_id, running.run_id), None, "answer")
        await refused(client.get_thread_run(thread_id, running.run_id), NotFoundException)


@suite.check
async def multitask_reject(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        first = await client.create_thread_run(thread_id, stateful(COUNTER, endless()))
        for call in [
            client.create_thread_run(thread_id, stateful(COUNTER, counting(1))),
            client.create_and_wait_for_thread_run_output(thread_id, stateful(COUNTER, counting(1))),
            client.stream("create_and_stream_thread_run_output", thread_id, stateful(COUNTER, counting(1))),
        ]:
            await refused(call, ConflictException)
        equal([run.run_id for run in await client.list_thread_runs(thread_id)], [first.run_id], "runs")
        await client.cancel_thread_run(thread_id, first.run_id, wait=True)


@suite.check
async def multitask_enqueue(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        first = await client.create_thread_run(thread_id, stateful(COUNTER, counting(10, 30)))
        later = [
            await client.create_thread_run(
                thread_id, stateful(COUNTER, counting(count), multitask_strategy="enqueue")
            )
            for count in [2, 4]
        ]
        for run in later:
            equal(run.status, RunStatus.PENDING, "status")
            await looked(client, run, RunStatus.SUCCESS)
        equal((await client.get_thread_run(thread_id, first.run_id)).status, RunStatus.SUCCESS, "status")
        history = await client.get_thread_history(thread_id)
        equal([state.values["total"] for state in history], [16, 12, 10], "totals")


@suite.check
async def multitask_interrupt_and_rollback(target: Target) -> None:
    async with target.client() as client:
        for strategy, kept in [("interrupt", True), ("rollback", False)]:
            thread_id = await new_thread(client)
            await client.create_and_wait_for_thread_run_output(thread_id, stateful(COUNTER, counting(3)))
            running = await client.create_thread_run(thread_id, stateful(COUNTER, endless()))
            queued = await client.create_thread_run(
                thread_id, stateful(COUNTER, counting(100), multitask_strategy="enqueue")
            )
            create = stateful(COUNTER, counting(4), multitask_strategy=strategy)
            answer = await client.create_and_wait_for_thread_run_output(thread_id, create)
            equal(answer.run.status, RunStatus.SUCCESS, "status")
            equal((await client.get_thread(thread_id)).values, {"total": 7}, "values")
            for old in [running, queued]:
                if kept:
                    await looked(client, old, RunStatus.ERROR)
                else:
                    await refused(client.get_thread_run(thread_id, old.run_id), NotFoundException)


@suite.check
async def runs_of_several_agents(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        await client.create_and_wait_for_thread_run_output(thread_id, stateful(target.echo, human("x")))
        # The counter declares the form of its state, and this state has another one.
        call = client.create_thread_run(thread_id, stateful(COUNTER, counting(1)))
        await refused(call, UnprocessableEntityException)
        # The other agents accept any state.
        answer = await client.create_and_wait_for_thread_run_output(thread_id, stateful(MOCK, {"message": "y"}))
        equal((await client.get_thread(thread_id)).values, target.undeclared({"message": "y"}), "values")
        equal(answer.run.agent_id, MOCK, "agent")


@suite.check
async def one_run_of_several_is_started(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        calls = [client.create_thread_run(thread_id, stateful(COUNTER, endless())) for _ in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        started = [each for each in answers if not isinstance(each, Exception)]
        lost = [each for each in answers if isinstance(each, ConflictException)]
        equal((len(started), len(lost)), (1, 4), f"number of runs started and refused of {answers}")
        await client.cancel_thread_run(thread_id, started[0].run_id, wait=True)


@suite.check
async def after_seconds_keeps_a_thread_busy(target: Target) -> None:
    async with target.client() as client:
        thread_id = await new_thread(client)
        run = await client.create_thread_run(thread_id, stateful(COUNTER, counting(1), after_seconds=3600))
        equal((await client.get_thread(thread_id)).status, ThreadStatus.BUSY, "status")
        await refused(client.create_thread_run(thread_id, stateful(COUNTER, counting(1))), ConflictException)
        await client.cancel_thread_run(thread_id, run.run_id, wait=True)
        begun = time.monotonic()
        run = await client.create_thread_run(thread_id, stateful(COUNTER, counting(1), after_seconds=1))
        await client.wait_for_thread_run_output(thread_id, run.run_id)
        assert time.monotonic() - begun > 0.9, "the run did not wait"
