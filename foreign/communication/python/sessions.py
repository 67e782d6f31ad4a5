"""Sessions on one server, and sessions that move between two."""

import time
from uuid import uuid4

import asyncio
import httpx
from acp_sdk.models import Message, MessageAwaitResume, MessagePart, RunCompletedEvent, RunStatus, Session
from acp_sdk.shared import ResourceLoader

from check import Suite, equal
from target import SETTLE_LIMIT, Target, refused

suite = Suite("sessions")
distributed = Suite("distributed")

AGENT = "history_echo"
HELLO = [Message(parts=[MessagePart(content="Hello!")])]
OUTPUT = [message.model_copy(update={"role": f"agent/{AGENT}"}) for message in HELLO]
NOTHING = MessageAwaitResume(message=Message(parts=[]))


def loader(target: Target) -> ResourceLoader:
    headers = {"authorization": f"Bearer {target.token}"} if target.token else None
    return ResourceLoader(client=httpx.AsyncClient(headers=headers, trust_env=False))


@suite.check
async def history_grows(target: Target) -> None:
    async with target.client() as client, client.session() as session:
        ids = set()
        for count in [1, 3, 7]:
            run = await session.run_sync(HELLO, agent=AGENT)
            equal(run.output, OUTPUT * count, "output")
            ids.add(run.session_id)
        equal(len(ids), 1, "number of sessions")


@suite.check
async def history_has_addresses(target: Target) -> None:
    async with target.client() as client, client.session() as session:
        run = await session.run_sync(HELLO, agent="echo")
        descriptor = await session.refresh_session()
        equal(descriptor.id, run.session_id, "id")
        equal(len(descriptor.history), 2, "length of the history")
        base = target.url.rstrip("/")
        for address in descriptor.history:
            assert str(address).startswith(f"{base}/resources/"), f"{address} does not begin with {base}"
        history = [message async for message in descriptor.load_history(loader=loader(target))]
        equal(history[0], HELLO[0], "input")
        equal(history[1], HELLO[0].model_copy(update={"role": "agent/echo"}), "output")


@suite.check
async def refresh_after_async(target: Target) -> None:
    async with target.client() as client, client.session() as session:
        await session.run_async(HELLO, agent=AGENT)
        deadline = time.monotonic() + SETTLE_LIMIT
        while len((await session.refresh_session()).history) < 2:
            assert time.monotonic() < deadline, "the run is not in the history"
            await asyncio.sleep(0.02)
        equal(len((await session.refresh_session()).history), 2, "length of the history")


@suite.check
async def stream_in_a_session(target: Target) -> None:
    async with target.client() as client, client.session() as session:
        for count in [1, 3]:
            events = [event async for event in session.run_stream(HELLO, agent=AGENT)]
            assert isinstance(events[-1], RunCompletedEvent), events[-1]
            equal(events[-1].run.output, OUTPUT * count, "output")


@suite.check
async def one_session_in_two_clients(target: Target) -> None:
    session = Session()
    for count in [1, 3]:
        async with target.client() as client, client.session(session) as within:
            run = await within.run_sync(HELLO, agent=AGENT)
            equal(run.output, OUTPUT * count, "output")
            equal(run.session_id, session.id, "session")


@suite.check
async def session_id_is_known_to_agents(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_sync(HELLO, agent="sessioner")
        equal(str(run.output[0]), str(run.session_id), "session of a lone run")
        session = Session()
        async with client.session(session) as within:
            run = await within.run_sync(HELLO, agent="sessioner")
            equal(str(run.output[0]), str(session.id), "session")


@suite.check
async def what_did_not_complete_is_no_history(target: Target) -> None:
    async with target.client() as client, client.session() as session:
        await session.run_sync(HELLO, agent="echo")
        for agent in ["failer", "raiser"]:
            run = await session.run_sync(HELLO, agent=agent)
            equal(run.status, RunStatus.FAILED, "status")
        equal(len((await session.refresh_session()).history), 2, "length of the history")


@suite.check
async def an_answered_run_in_a_session(target: Target) -> None:
    async with target.client() as client, client.session() as session:
        run = await session.run_sync(HELLO, agent="awaiter")
        equal(run.status, RunStatus.AWAITING, "status")
        # A waiting run does not block other runs.
        other = await session.run_sync(HELLO, agent="echo")
        equal(other.status, RunStatus.COMPLETED, "status of another run")
        run = await session.run_resume_sync(NOTHING, run_id=run.run_id)
        equal((run.status, str(run.output[0])), (RunStatus.COMPLETED, "empty"), "answered run")
        equal(run.session_id, other.session_id, "session")


@suite.check
async def a_session_given_whole_replaces_the_history(target: Target) -> None:
    session = Session()
    async with target.client() as client, client.session(session) as within:
        await within.run_sync(HELLO, agent=AGENT)
        await within.run_sync(HELLO, agent=AGENT)
    async with target.http() as http:
        body = {
            "agent_name": AGENT,
            "session": {"id": str(session.id), "history": [], "state": None},
            "input": [message.model_dump(mode="json") for message in HELLO],
        }
        answer = await http.post("runs", json=body)
        equal(answer.status_code, 200, "status")
        equal(len(answer.json()["output"]), 1, "number of messages")


@suite.check
async def unknown_session(target: Target) -> None:
    async with target.client() as client, client.session() as session:
        await refused(session.refresh_session(), "not_found")
    async with target.http() as http:
        answer = await http.get(f"sessions/{uuid4()}")
        equal((answer.status_code, answer.json()["code"]), (404, "not_found"), "answer")


@distributed.check
async def a_session_moves_between_servers(target: Target) -> None:
    one, two = target.url, target.peers[0]
    async with target.client() as client, client.session() as session:
        for count, base_url in [(1, one), (3, two), (7, one), (15, two)]:
            run = await session.run_sync(HELLO, agent=AGENT, base_url=base_url)
            equal(run.status, RunStatus.COMPLETED, f"status on {base_url}: {run.error}")
            equal(run.output, OUTPUT * count, f"output on {base_url}")


@distributed.check
async def both_servers_name_the_whole_history(target: Target) -> None:
    one, two = (base.rstrip("/") for base in [target.url, target.peers[0]])
    async with target.client() as client, client.session() as session:
        await session.run_sync(HELLO, agent="echo", base_url=one)
        await session.run_sync(HELLO, agent="echo", base_url=two)
        descriptor = await session.refresh_session(base_url=two)
        places = [str(address).rsplit("/resources/", 1)[0] for address in descriptor.history]
        equal(places, [one, one, two, two], "places of the history")
        history = [message async for message in descriptor.load_history(loader=loader(target))]
        equal([message.role for message in history], ["user", "agent/echo"] * 2, "roles")


@distributed.check
async def what_cannot_be_fetched_fails_the_run(target: Target) -> None:
    async with target.http() as http:
        body = {
            "agent_name": AGENT,
            "session": {"id": str(uuid4()), "history": [f"{target.peers[0].rstrip('/')}/resources/{uuid4()}"]},
            "input": [message.model_dump(mode="json") for message in HELLO],
        }
        answer = await http.post("runs", json=body)
        equal((answer.status_code, answer.json()["status"]), (200, "failed"), "answer")
        assert answer.json()["error"]["message"], answer.text
