"""Discovery, and the answers of every agent of the conformance program."""

import base64

from acp_sdk.models import (
    AgentManifest,
    ArtifactEvent,
    GenericEvent,
    Message,
    MessageCreatedEvent,
    MessagePart,
    MessagePartEvent,
    RunCompletedEvent,
    RunCreatedEvent,
    RunStatus,
)

from check import Suite, equal
from target import Target, refused

suite = Suite("agents")

NAMES = {
    "echo",
    "slow_echo",
    "history_echo",
    "awaiter",
    "failer",
    "raiser",
    "sessioner",
    "words",
    "mime_types",
    "base64_encoding",
    "artifact_producer",
    "org-agntcy-echo",
    "org-agntcy-mock",
    "counter",
}
HELLO = [Message(parts=[MessagePart(content="Hello!")])]
WRITTEN = ["text/html", "application/json", "application/javascript", "text/css"]


@suite.check
async def ping(target: Target) -> None:
    async with target.client() as client:
        await client.ping()


@suite.check
async def list_of_agents(target: Target) -> None:
    async with target.client() as client:
        agents = [agent async for agent in client.agents()]
    for agent in agents:
        assert isinstance(agent, AgentManifest)
        assert agent.description is not None, f"{agent.name} has no description"
        assert agent.input_content_types and agent.output_content_types, f"{agent.name} names no content types"
    equal({agent.name for agent in agents}, NAMES, "set of agents")
    equal(len(agents), len(NAMES), "number of agents")


@suite.check
async def manifest_of_each_agent(target: Target) -> None:
    async with target.client() as client:
        for name in sorted(NAMES):
            manifest = await client.agent(name=name)
            equal(manifest.name, name, "name")
            assert manifest.metadata is not None


@suite.check
async def content_types_of_a_manifest(target: Target) -> None:
    async with target.client() as client:
        manifest = await client.agent(name="mime_types")
    equal(manifest.input_content_types, ["text/plain", "application/json"], "input content types")
    equal(manifest.output_content_types, WRITTEN, "output content types")


@suite.check
async def unknown_agent(target: Target) -> None:
    async with target.client() as client:
        await refused(client.agent(name="nobody"), "not_found")
        await refused(client.agent(name="ECHO"), "not_found")
        await refused(client.run_sync(HELLO, agent="nobody"), "not_found")
        await refused(client.run_async(HELLO, agent="nobody"), "not_found")

        async def stream() -> list[object]:
            return [event async for event in client.run_stream(HELLO, agent="nobody")]

        await refused(stream(), "not_found")


@suite.check
async def mime_types(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_sync(HELLO, agent="mime_types")
    equal(run.status, RunStatus.COMPLETED, "status")
    equal(len(run.output), 1, "number of messages")
    parts = [(part.content_type, part.content) for part in run.output[0].parts]
    equal(
        parts,
        [
            ("text/html", "<h1>HTML Content</h1>"),
            ("application/json", '{"key": "value"}'),
            ("application/javascript", "console.log('Hello');"),
            ("text/css", "body { color: red; }"),
        ],
        "parts",
    )


@suite.check
async def base64_encoding(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_sync(HELLO, agent="base64_encoding")
    equal(run.status, RunStatus.COMPLETED, "status")
    equal(len(run.output), 1, "number of messages")
    image, text = run.output[0].parts
    equal((image.content_type, image.content_encoding), ("image/png", "base64"), "image")
    assert base64.b64decode(image.content, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    equal((text.content_type, text.content_encoding), ("text/plain", "plain"), "text")
    equal(text.content, "This is plain text", "text")


@suite.check
async def artifacts(target: Target) -> None:
    async with target.client() as client:
        run = await client.run_sync(HELLO, agent="artifact_producer")
    equal(run.status, RunStatus.COMPLETED, "status")
    equal(len(run.output), 1, "number of messages")
    parts = run.output[0].parts
    equal([part.name for part in parts], [None, "text-result.txt", "data.json", "image.png"], "names")
    equal(parts[0].content, "Processing with artifacts", "first part")
    equal((parts[1].content_type, parts[1].content), ("text/plain", "This is a text artifact result"), "text")
    equal(parts[2].content_type, "application/json", "content type")
    equal(parts[2].content, '{"results": [1, 2, 3], "status": "complete"}', "JSON")
    equal((parts[3].content_type, parts[3].content_encoding), ("image/png", "base64"), "image")
    assert base64.b64decode(parts[3].content, validate=True).startswith(b"\x89PNG\r\n\x1a\n")


@suite.check
async def artifacts_as_a_stream(target: Target) -> None:
    async with target.client() as client:
        events = [event async for event in client.run_stream(HELLO, agent="artifact_producer")]
    assert isinstance(events[0], RunCreatedEvent) and isinstance(events[-1], RunCompletedEvent)
    plain = [event for event in events if isinstance(event, MessagePartEvent)]
    equal([event.part.content for event in plain], ["Processing with artifacts"], "plain parts")
    named = [event.part.name for event in events if isinstance(event, ArtifactEvent)]
    equal(named, ["text-result.txt", "data.json", "image.png"], "artifacts")
    begun = [event.message for event in events if isinstance(event, MessageCreatedEvent)]
    equal(len(begun), 1, "number of messages")
    assert not any(isinstance(event, GenericEvent) for event in events)


@suite.check
async def role_of_what_agents_say(target: Target) -> None:
    async with target.client() as client:
        for name in ["mime_types", "base64_encoding", "artifact_producer", "sessioner"]:
            run = await client.run_sync(HELLO, agent=name)
            equal({message.role for message in run.output}, {f"agent/{name}"}, "role")
            for message in run.output:
                assert message.created_at is not None and message.completed_at is not None
