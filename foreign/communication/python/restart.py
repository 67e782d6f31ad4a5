"""Work that begins before a server is killed, and its state afterwards."""

import json

from acp_sdk.models import Message, MessageAwaitResume, MessagePart, RunStatus, Session

from check import equal
from target import Target

HELLO = [Message(parts=[MessagePart(content="Hello!")])]
NOTHING = MessageAwaitResume(message=Message(parts=[]))
AGENT = "history_echo"


async def begin(target: Target) -> None:
    """Leaves a completed run and two waiting ones behind, and prints their ids."""
    session = Session()
    async with target.client() as client, client.session(session) as within:
        done = await within.run_sync(HELLO, agent=AGENT)
        equal(done.status, RunStatus.COMPLETED, "status")
        waiting = [await client.run_sync(HELLO, agent="awaiter") for _ in range(2)]
        equal({run.status for run in waiting}, {RunStatus.AWAITING}, "status")
        listed = [event.model_dump_json() async for event in client.run_events(run_id=done.run_id)]
    left = {
        "session": str(session.id),
        "done": done.model_dump_json(),
        "events": listed,
        "waiting": [str(run.run_id) for run in waiting],
    }
    print(f"left {json.dumps(left)}", flush=True)


async def finish(target: Target, text: str) -> None:
    """Finds everything unchanged, answers the waiting runs, and continues the session."""
    left = json.loads(text)
    async with target.client() as client:
        from acp_sdk.models import Run

        done = Run.model_validate_json(left["done"])
        equal(await client.run_status(run_id=done.run_id), done, "completed run")
        listed = [event.model_dump_json() async for event in client.run_events(run_id=done.run_id)]
        equal(listed, left["events"], "events")
        print("ok restart.completed_run", flush=True)

        first, second = left["waiting"]
        equal((await client.run_status(run_id=first)).status, RunStatus.AWAITING, "status")
        run = await client.run_resume_sync(NOTHING, run_id=first)
        equal((run.status, str(run.output[0])), (RunStatus.COMPLETED, "empty"), "answered run")
        events = [event async for event in client.run_resume_stream(NOTHING, run_id=second)]
        equal(events[-1].run.status, RunStatus.COMPLETED, "status")
        print("ok restart.waiting_runs", flush=True)

        async with client.session(Session(id=left["session"])) as within:
            run = await within.run_sync(HELLO, agent=AGENT)
            equal(len(run.output), 3, "number of messages")
        print("ok restart.session", flush=True)
