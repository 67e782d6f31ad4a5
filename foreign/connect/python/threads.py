"""Every operation on threads."""

import time
from uuid import uuid4

from agntcy_acp import ConflictException, NotFoundException, UnprocessableEntityException
from agntcy_acp.models import ThreadCheckpoint, ThreadCreate, ThreadPatch, ThreadSearchRequest, ThreadStatus

from asking import COUNTER, ILL, INTERRUPT, MOCK, NOBODY, counting, endless, human, stateful, talk
from check import Suite, equal
from target import Caller, Target, refused

suite = Suite("threads")


async def counted(client: Caller, thread_id: str, *counts: int) -> None:
    """Counts on a thread, run by run."""
    for count in counts:
        answer = await client.create_and_wait_for_thread_run_output(thread_id, stateful(COUNTER, counting(count)))
        equal(answer.output.actual_instance.type, "result", f"output {answer}")


@suite.check
async def create_thread(target: Target) -> None:
    async with target.client() as client:
        made = await client.create_thread(ThreadCreate())
        equal((made.status, made.metadata, made.values), (ThreadStatus.IDLE, {}, None), "thread")
        assert made.created_at <= made.updated_at
        name = str(uuid4())
        named = await client.create_thread(ThreadCreate(thread_id=name, metadata={"a": 1}))
        equal((named.thread_id, named.metadata), (name, {"a": 1}), "thread")
        again = ThreadCreate(thread_id=name, metadata={"b": 2})
        await refused(client.create_thread(again), ConflictException)
        kept = await client.create_thread(ThreadCreate(thread_id=name, metadata={"b": 2}, if_exists="do_nothing"))
        equal(kept.to_dict(), named.to_dict(), "thread")
        # The thread's name in the client's node for graphs.
        free = await client.create_thread(ThreadCreate(thread_id=f"abc {name}", if_exists="do_nothing"))
        equal((await client.get_thread(free.thread_id)).thread_id, f"abc {name}", "thread")


@suite.check
async def get_thread(target: Target) -> None:
    async with target.client() as client:
        made = await client.create_thread(ThreadCreate(metadata={"a": {"b": [1]}}))
        equal((await client.get_thread(made.thread_id)).to_dict(), made.to_dict(), "thread")
        await counted(client, made.thread_id, 2, 3)
        thread = await client.get_thread(made.thread_id)
        equal((thread.values, thread.status, thread.metadata), ({"total": 5}, ThreadStatus.IDLE, made.metadata), "thread")
        assert thread.updated_at > made.updated_at
        await refused(client.get_thread(NOBODY), NotFoundException)
        await refused(client.get_thread("nobody"), NotFoundException)


@suite.check
async def patch_thread(target: Target) -> None:
    async with target.client() as client:
        thread_id = (await client.create_thread(ThreadCreate(metadata={"a": 1, "b": 2}))).thread_id
        patched = await client.patch_thread(thread_id, ThreadPatch(metadata={"b": 3, "c": 4}))
        equal(patched.metadata, {"a": 1, "b": 3, "c": 4}, "metadata")
        await counted(client, thread_id, 2, 3)
        patched = await client.patch_thread(thread_id, ThreadPatch(values={"total": 100}))
        equal((patched.values, patched.metadata), ({"total": 100}, {"a": 1, "b": 3, "c": 4}), "thread")
        await counted(client, thread_id, 1)
        equal((await client.get_thread(thread_id)).values, {"total": 101}, "values")
        # From an older state, on a separate branch.
        history = await client.get_thread_history(thread_id)
        equal([state.values["total"] for state in history], [101, 100, 5, 2], "totals")
        old = ThreadCheckpoint(checkpoint_id=history[3].checkpoint.checkpoint_id)
        branch = await client.patch_thread(thread_id, ThreadPatch(checkpoint=old, values={"total": 40}))
        equal(branch.values, {"total": 40}, "values")
        await counted(client, thread_id, 2)
        equal((await client.get_thread(thread_id)).values, {"total": 42}, "values")
        unfit = ThreadPatch(values={"total": "many"})
        await refused(client.patch_thread(thread_id, unfit), UnprocessableEntityException)
        lost = ThreadPatch(checkpoint=ThreadCheckpoint(checkpoint_id=NOBODY), values={"total": 1})
        await refused(client.patch_thread(thread_id, lost), NotFoundException)
        await refused(client.patch_thread(NOBODY, ThreadPatch(metadata={})), NotFoundException)
        equal((await client.get_thread(thread_id)).values, {"total": 42}, "values")


@suite.check
async def get_thread_history(target: Target) -> None:
    async with target.client() as client:
        thread_id = (await client.create_thread(ThreadCreate())).thread_id
        equal(await client.get_thread_history(thread_id), [], "history")
        await counted(client, thread_id, *[1] * 12)
        history = await client.get_thread_history(thread_id)
        equal([state.values["total"] for state in history], list(range(12, 2, -1)), "totals")
        ids = [state.checkpoint.checkpoint_id for state in history]
        equal(len(set(ids)), 10, "number of checkpoints")
        before = await client.get_thread_history(thread_id, limit=5, before=ids[-1])
        equal([state.values["total"] for state in before], [2, 1], "totals")
        equal(len(await client.get_thread_history(thread_id, limit=1)), 1, "number of states")
        await refused(client.get_thread_history(thread_id, before=NOBODY), NotFoundException)
        await refused(client.get_thread_history(NOBODY), NotFoundException)


@suite.check
async def copy_thread(target: Target) -> None:
    async with target.client() as client:
        made = await client.create_thread(ThreadCreate(metadata={"a": 1}))
        await counted(client, made.thread_id, 1, 2)
        copy = await client.copy_thread(made.thread_id)
        assert copy.thread_id != made.thread_id
        equal((copy.metadata, copy.values, copy.status), ({"a": 1}, {"total": 3}, ThreadStatus.IDLE), "copy")
        history = await client.get_thread_history(copy.thread_id)
        equal([state.values["total"] for state in history], [3, 1], "totals")
        # The two threads are independent.
        await counted(client, copy.thread_id, 10)
        await counted(client, made.thread_id, 20)
        equal((await client.get_thread(copy.thread_id)).values, {"total": 13}, "values")
        equal((await client.get_thread(made.thread_id)).values, {"total": 23}, "values")
        await refused(client.copy_thread(NOBODY), NotFoundException)


@suite.check
async def delete_thread(target: Target) -> None:
    async with target.client() as client:
        thread_id = (await client.create_thread(ThreadCreate())).thread_id
        run = await client.create_thread_run(thread_id, stateful(COUNTER, endless()))
        # A busy thread is not deleted: the protocol has no 409 here.
        await refused(client.delete_thread(thread_id), UnprocessableEntityException)
        equal((await client.get_thread(thread_id)).status, ThreadStatus.BUSY, "status")
        await client.cancel_thread_run(thread_id, run.run_id, wait=True)
        equal(await client.delete_thread(thread_id), None, "answer")
        for call in [
            client.get_thread(thread_id),
            client.delete_thread(thread_id),
            client.get_thread_run(thread_id, run.run_id),
            client.get_stateless_run(run.run_id),
            client.list_thread_runs(thread_id),
        ]:
            await refused(call, NotFoundException)


@suite.check
async def search_threads(target: Target) -> None:
    async with target.client() as client:
        mark = {"mark": f"{time.monotonic_ns()}"}
        made = [
            (await client.create_thread(ThreadCreate(metadata=mark | {"n": number}))).thread_id for number in range(5)
        ]
        await counted(client, made[1], 7)
        await client.create_and_wait_for_thread_run_output(made[2], stateful(MOCK, INTERRUPT))
        await client.create_and_wait_for_thread_run_output(made[3], stateful(MOCK, ILL))
        busy = await client.create_thread_run(made[4], stateful(COUNTER, endless()))

        async def found(**request: object) -> list[int]:
            request.setdefault("metadata", mark)
            threads = await client.search_threads(ThreadSearchRequest(**request))
            return [made.index(thread.thread_id) for thread in threads]

        equal(await found(), [4, 3, 2, 1, 0], "newest first")
        equal(await found(limit=2, offset=1), [3, 2], "page")
        equal(await found(metadata=mark | {"n": 3}), [3], "by metadata")
        equal(await found(values={"total": 7}), [1], "by values")
        equal(await found(values={"total": 8}), [], "by other values")
        for status, numbers in [
            (ThreadStatus.IDLE, [1, 0]),
            (ThreadStatus.INTERRUPTED, [2]),
            (ThreadStatus.ERROR, [3]),
            (ThreadStatus.BUSY, [4]),
        ]:
            equal(await found(status=status), numbers, status.value)
            for number in numbers:
                equal((await client.get_thread(made[number])).status, status, "status")
        equal(await found(status=ThreadStatus.IDLE, metadata=mark | {"n": 0}), [0], "by both")
        await client.cancel_thread_run(made[4], busy.run_id, wait=True)


@suite.check
async def an_undeclared_state_is_shown_and_replaced(target: Target) -> None:
    async with target.client() as client:
        thread_id = (await client.create_thread(ThreadCreate())).thread_id
        for text in ["first", "second"]:
            await client.create_and_wait_for_thread_run_output(thread_id, stateful(target.echo, human(text)))
        seen = await client.get_thread(thread_id)
        equal(seen.values, target.undeclared(talk("second", "second")), "values")
