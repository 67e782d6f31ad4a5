"""The three scenarios of the protocol's own live client, step by step, in our words."""

from agntcy_acp.models import RunStatus, ThreadCreate, ThreadSearchRequest, ThreadStatus

from asking import human, stateful, stateless, talk
from check import Suite, equal
from target import Target

suite = Suite("scenarios")

UPPER = {"to_upper": True}
LOWER = {"to_lower": True, "to_upper": False}


@suite.check
async def stateless_in_seven_steps(target: Target) -> None:
    async with target.client() as client:
        create = stateless(target.echo, human("How are you?"), UPPER)
        answer = await client.create_and_wait_for_stateless_run_output(create)
        equal(answer.output.actual_instance.to_dict(), {"type": "result", "values": talk("How are you?", "HOW ARE YOU?")})
        equal((answer.run.status, answer.run.agent_id), (RunStatus.SUCCESS, target.echo), "run")

        run = await client.create_stateless_run(create)
        equal((run.status, run.agent_id), (RunStatus.PENDING, target.echo), "run")
        answer = await client.wait_for_stateless_run_output(run.run_id)
        equal((answer.run.status, answer.run.run_id), (RunStatus.SUCCESS, run.run_id), "run")
        equal(answer.run.creation.agent_id, target.echo, "agent of the creation")
        equal((await client.get_stateless_run(run.run_id)).status, RunStatus.SUCCESS, "status")

        create = stateless(target.echo, human("How are you?"), UPPER | {"interrupt_count": 1})
        answer = await client.create_and_wait_for_stateless_run_output(create)
        equal(answer.run.status, RunStatus.INTERRUPTED, "status")
        asked = answer.output.actual_instance
        equal((asked.type, asked.interrupt), ("interrupt", {"echo_interrupt": talk("How are you?", "HOW ARE YOU?")}))
        run_id = answer.run.run_id
        run = await client.resume_stateless_run(run_id, talk("How are you?", "HOW ARE YOU?", "Well"))
        equal((run.status, run.run_id, run.agent_id), (RunStatus.PENDING, run_id, target.echo), "run")
        answer = await client.wait_for_stateless_run_output(run_id)
        equal(answer.output.actual_instance.values, talk("How are you?", "HOW ARE YOU?", "Well", "WELL"), "values")
        equal(answer.run.status, RunStatus.SUCCESS, "status")


@suite.check
async def stateful_in_nine_steps(target: Target) -> None:
    async with target.client() as client:
        thread = await client.create_thread(ThreadCreate(metadata={}))
        equal(thread.status, ThreadStatus.IDLE, "status")
        found = await client.search_threads(ThreadSearchRequest(status=ThreadStatus.IDLE))
        equal(found[0].thread_id, thread.thread_id, "newest idle thread")

        create = stateful(target.echo, human("How are you?"), UPPER)
        answer = await client.create_and_wait_for_thread_run_output(thread.thread_id, create)
        equal(answer.output.actual_instance.values, talk("How are you?", "HOW ARE YOU?"), "values")
        equal(answer.run.status, RunStatus.SUCCESS, "status")
        runs = await client.list_thread_runs(thread.thread_id)
        equal(runs[0].run_id, answer.run.run_id, "newest run")
        seen = await client.get_thread(thread.thread_id)
        equal(seen.values, target.undeclared(talk("How are you?", "HOW ARE YOU?")), "values")
        history = await client.get_thread_history(thread.thread_id, limit=10)
        if not target.as_documented:
            equal(history[0].values["messages"][0], human("How are you?")["messages"][0], "first message")

        create = stateful(target.echo, human("And now?"), UPPER)
        answer = await client.create_and_wait_for_thread_run_output(thread.thread_id, create)
        equal(answer.output.actual_instance.values, talk("And now?", "AND NOW?"), "values")
        seen = await client.get_thread(thread.thread_id)
        equal(seen.values, target.undeclared(talk("And now?", "AND NOW?")), "values")
        equal(await client.delete_thread(thread.thread_id), None, "answer")


@suite.check
async def streaming_in_three_steps(target: Target) -> None:
    async with target.client() as client:
        create = stateless(target.echo, human("How ARE you?"), UPPER)
        if not target.as_documented:
            events = await client.stream("create_and_stream_stateless_run_output", create)
            first = events[0].data
            equal((first["type"], first["status"]), ("values", "pending"), "first event")
            equal(first["values"], talk("How ARE you?", "HOW ARE YOU?"), "values")

        run = await client.create_stateless_run(stateless(target.echo, human("HOW are you?"), LOWER))
        equal(run.status, RunStatus.PENDING, "status")
        events = await client.stream("stream_stateless_run_output", run.run_id)
        last = events[-1].data
        equal((last["type"], last["status"]), ("values", "success"), "last event")
        equal(last["values"], talk("HOW are you?", "how are you?"), "values")
