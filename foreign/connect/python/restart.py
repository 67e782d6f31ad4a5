"""Work that begins before a server is killed, and its state afterwards."""

import json

from agntcy_acp.models import RunStatus, ThreadCreate, ThreadStatus

from asking import COUNTER, HELP, INTERRUPT, MOCK, counting, stateful, stateless
from check import equal
from target import Target


async def begin(target: Target) -> None:
    """Leaves a thread with states, a waiting run, a scheduled one, and a configured instance behind."""
    async with target.client() as client:
        thread = await client.create_thread(ThreadCreate(metadata={"kept": True}))
        for count in [2, 3]:
            create = stateful(COUNTER, counting(count))
            done = await client.create_and_wait_for_thread_run_output(thread.thread_id, create)
        waiting = await client.create_and_wait_for_stateless_run_output(stateless(MOCK, INTERRUPT))
        body = {"config": {"pause_ms": 1}}
        instance = await target.raw("POST", f"/agents/{MOCK}/configurations", body)
        left = {
            "thread": (await client.get_thread(thread.thread_id)).to_json(),
            "history": [state.to_json() for state in await client.get_thread_history(thread.thread_id)],
            "done": done.to_json(),
            "waiting": waiting.run.run_id,
            "instance": instance.json(),
        }
        # Requested last and started late: it must not run yet when the server is killed.
        scheduled = await client.create_stateless_run(stateless(COUNTER, counting(1), after_seconds=4))
        left["scheduled"] = scheduled.run_id
    print(f"left {json.dumps(left)}", flush=True)


async def finish(target: Target, text: str) -> None:
    """Finds everything unchanged, and continues from there."""
    left = json.loads(text)
    async with target.client() as client:
        thread_id = json.loads(left["thread"])["thread_id"]
        equal((await client.get_thread(thread_id)).to_json(), left["thread"], "thread")
        history = [state.to_json() for state in await client.get_thread_history(thread_id)]
        equal(history, left["history"], "history")
        done = json.loads(left["done"])
        answer = await client.wait_for_thread_run_output(thread_id, done["run"]["run_id"])
        equal(json.loads(answer.to_json()), done, "finished run")
        create = stateful(COUNTER, counting(10))
        await client.create_and_wait_for_thread_run_output(thread_id, create)
        thread = await client.get_thread(thread_id)
        equal((thread.values, thread.status), ({"total": 15}, ThreadStatus.IDLE), "thread")
        print("ok restart.thread", flush=True)

        answer = await client.wait_for_stateless_run_output(left["waiting"])
        equal(answer.output.actual_instance.interrupt, {"mock_interrupt": HELP}, "interrupt")
        await client.resume_stateless_run(left["waiting"], {"message": "still here"})
        answer = await client.wait_for_stateless_run_output(left["waiting"])
        equal(answer.output.actual_instance.values, {"message": "still here"}, "values")
        print("ok restart.waiting_run", flush=True)

        instance = left["instance"]["configuration_id"]
        path = f"/agents/{MOCK}/configurations/{instance}"
        equal((await target.raw("GET", path)).json(), left["instance"], "configured instance")
        sky = stateless(instance, {"message": "What's the color of the sky?"})
        answer = await client.create_and_wait_for_stateless_run_output(sky)
        equal(answer.run.status, RunStatus.SUCCESS, "status")
        print("ok restart.configured_instance", flush=True)

        answer = await client.wait_for_stateless_run_output(left["scheduled"])
        equal(answer.run.status, RunStatus.SUCCESS, "status")
        print("ok restart.scheduled_run", flush=True)
