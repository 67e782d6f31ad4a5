"""The built-in agents of the server, with a key."""

from agntcy_acp import UnauthorizedException
from agntcy_acp.models import AgentSearchRequest, RunStatus, ThreadCreate

from asking import stateful, stateless
from check import Suite, equal
from target import Target, refused

suite = Suite("builtin")

MAILCOMPOSER = "org.agntcy.mailcomposer"
LETTER = {"message": "Write to ada@example.com about the report: it is ready."}


@suite.check
async def agents(target: Target) -> None:
    async with target.client() as client:
        found = await client.search_agents(AgentSearchRequest())
        names = {agent.metadata.ref.name for agent in found}
        assert {"echo", MAILCOMPOSER, "researcher"} <= names, names
        for agent in found:
            descriptor = await client.get_acp_descriptor_by_id(agent.agent_id)
            equal(descriptor.metadata.to_dict(), agent.metadata.to_dict(), "metadata")


@suite.check
async def mailcomposer_asks(target: Target) -> None:
    async with target.client() as client:
        thread_id = (await client.create_thread(ThreadCreate())).thread_id
        create = stateful("mailcomposer", LETTER, {"style": "formal"})
        answer = await client.create_and_wait_for_thread_run_output(thread_id, create)
        equal(answer.run.status, RunStatus.INTERRUPTED, "status")
        (kind, payload), *more = answer.output.actual_instance.interrupt.items()
        equal((kind, more), ("mail_send_approval", []), "interrupt")
        equal(payload["recipients"], ["ada@example.com"], "recipients")
        await client.resume_thread_run(thread_id, answer.run.run_id, {"approved": True, "reason": "fine"})
        answer = await client.wait_for_thread_run_output(thread_id, answer.run.run_id)
        equal(answer.run.status, RunStatus.SUCCESS, "status")
        assert answer.output.actual_instance.values["message"], answer
        state = (await client.get_thread(thread_id)).values
        assert LETTER["message"] in state["messages"], state


@suite.check
async def researcher_as_a_stream(target: Target) -> None:
    async with target.client() as client:
        create = stateless("researcher", {"message": "what is a log?"})
        events = await client.stream("create_and_stream_stateless_run_output", create)
        equal((events[0].status, events[-1].status), ("pending", "success"), "statuses")
        assert events[-1].data["values"], events[-1]


@suite.check
async def strangers_are_turned_away(target: Target) -> None:
    async with target.client(key="no-such-key") as client:
        await refused(client.search_agents(AgentSearchRequest()), UnauthorizedException)
        await refused(client.create_stateless_run(stateless("echo", {"message": "x"})), UnauthorizedException)
        await refused(
            client.stream("create_and_stream_stateless_run_output", stateless("echo", {"message": "x"})),
            UnauthorizedException,
        )
    stranger = Target(target.url)
    answer = await stranger.raw("GET", "/authentication")
    equal((answer.status, answer.json()["required"]), (200, True), "authentication")
    # Anyone may read how an agent's callers authenticate; without a token, a caller does not learn which agents exist.
    told = [await stranger.raw("GET", f"/agents/{name}/authentication") for name in ["echo", "nobody"]]
    equal([answer.status for answer in told], [200, 200], "authentication of agents")
    equal(told[0].json(), told[1].json(), "authentication of an agent that is not there")
    for path in ["/agents/echo", "/agents/nobody"]:
        answer = await stranger.raw("GET", path)
        equal(answer.status, 401, path)
    named = {name.lower(): value for name, value in answer.headers.items()}
    assert "www-authenticate" in named, named
