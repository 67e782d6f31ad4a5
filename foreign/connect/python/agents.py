"""Every operation on agents, and the further requirements of the protocol's document."""

from agntcy_acp import NotFoundException
from agntcy_acp.models import AgentSearchRequest

from asking import COUNTER, MOCK, NOBODY, human, stateless
from check import Suite, equal
from target import Target, refused

suite = Suite("agents")


def names(agents: list) -> list[str]:
    return [agent.metadata.ref.name for agent in agents]


@suite.check
async def search_agents(target: Target) -> None:
    async with target.client() as client:
        # The client itself always sends a limit of ten.
        every = await client.search_agents(AgentSearchRequest(limit=1000))
        assert {"org.agntcy.echo", "org.agntcy.mock", "counter"} <= set(names(every)), names(every)
        equal(len(set(agent.agent_id for agent in every)), len(every), "number of ids")
        for agent in every:
            assert agent.metadata.description and agent.metadata.ref.version, agent
        for number in range(len(every)):
            page = await client.search_agents(AgentSearchRequest(limit=1, offset=number))
            equal(names(page), [names(every)[number]], f"page {number}")
        for request, found in [
            (AgentSearchRequest(name="org.agntcy.echo"), ["org.agntcy.echo"]),
            (AgentSearchRequest(name="org.agntcy.echo", version="0.1.0"), ["org.agntcy.echo"]),
            (AgentSearchRequest(version="0.0.1"), ["org.agntcy.mock"]),
            (AgentSearchRequest(name="org.agntcy"), []),
            (AgentSearchRequest(name="org.agntcy.echo", version="9.9.9"), []),
            (AgentSearchRequest(name="nobody"), []),
        ]:
            equal(names(await client.search_agents(request)), found, f"answer to {request!r}")


@suite.check
async def search_without_a_limit_gives_all(target: Target) -> None:
    answer = await target.raw("POST", "/agents/search", {})
    equal(answer.status, 200, "status")
    async with target.client() as client:
        every = await client.search_agents(AgentSearchRequest(limit=1000))
    equal([agent["agent_id"] for agent in answer.json()], [agent.agent_id for agent in every], "agents")


@suite.check
async def get_agent_by_id(target: Target) -> None:
    async with target.client() as client:
        echo = await client.get_agent_by_id(target.echo)
        equal((echo.agent_id, echo.metadata.ref.name), (target.echo, "org.agntcy.echo"), "agent")
        mock = await client.get_agent_by_id(MOCK)
        equal((mock.metadata.ref.name, mock.metadata.ref.version), ("org.agntcy.mock", "0.0.1"), "agent")
        for unknown in [NOBODY, "no-uuid", "a/b"]:
            await refused(client.get_agent_by_id(unknown), NotFoundException)


@suite.check
async def get_acp_descriptor_by_id(target: Target) -> None:
    async with target.client() as client:
        echo = await client.get_acp_descriptor_by_id(target.echo)
        equal(echo.metadata.ref.name, "org.agntcy.echo", "name")
        equal((echo.specs.capabilities.threads, echo.specs.capabilities.interrupts), (True, True), "capabilities")
        assert "$defs" in echo.specs.input and "$defs" in echo.specs.output, echo.specs
        assert echo.specs.thread_state is None, "the agent declares no state"
        equal(set(echo.specs.config["properties"]), {"to_upper", "to_lower", "interrupt_count"}, "configuration")
        equal([each.interrupt_type for each in echo.specs.interrupts], ["echo_interrupt"], "interrupts")
        counter = (await client.get_acp_descriptor_by_id(COUNTER)).specs
        assert counter.thread_state is not None and counter.custom_streaming_update is not None, counter
        streaming = counter.capabilities.streaming
        equal((streaming.values, streaming.custom), (True, True), "streaming")
        await refused(client.get_acp_descriptor_by_id(NOBODY), NotFoundException)


@suite.check
async def what_the_document_demands_beyond(target: Target) -> None:
    """Members that the client does not know; they must not disturb it."""
    for path in [
        "/authentication",
        "/errors",
        f"/agents/{target.echo}/authentication",
        f"/agents/{target.echo}/capabilities",
        f"/agents/{target.echo}/schemas",
        f"/agents/{target.echo}/errors",
        f"/agents/{target.echo}/openapi",
        f"/agents/agent/{target.echo}/descriptor",
    ]:
        answer = await target.raw("GET", path)
        equal(answer.status, 200, f"status of {path}")
        assert isinstance(answer.json(), dict | list), path
    body = {"config": {"to_upper": True}}
    made = await target.raw("POST", f"/agents/{target.echo}/configurations", body)
    equal(made.status, 200, "status")
    instance = made.json()["configuration_id"]
    async with target.client() as client:
        # The only way in which this client can use a configured instance.
        answer = await client.create_and_wait_for_stateless_run_output(stateless(instance, human("hi")))
        said = answer.output.actual_instance.values["messages"]
        equal((answer.run.agent_id, said[-1]["content"]), (target.echo, "HI"), "run of an instance")
    gone = await target.raw("DELETE", f"/agents/{target.echo}/configurations/{instance}")
    equal(gone.status, 204, "status")
