"""An agent of any kind that does what its prompts say, through the official client, helped by the other protocols."""

from uuid import uuid4

from agntcy_acp.models import RunStatus, ThreadCreate

from asking import stateful, stateless
from check import Suite, equal
from target import Caller, Target, settled
from words import COUNTED, FAILURE, PIXEL

suite = Suite("bridge")


def has_faces(target: Target) -> bool:
    """Whether other protocols can help: not if the agent's own server is driven."""
    return target.faces is not None


# The protocol that answers, cancels and begins runs in place of this client.
OTHER = "communication"


def said(text: str) -> dict:
    return {"messages": [{"role": "user", "content": text}]}


async def new_thread(client: Caller) -> str:
    return (await client.create_thread(ThreadCreate(thread_id=str(uuid4())))).thread_id


def whole(values: dict) -> str:
    """The text of all messages."""
    return "".join(piece for message in values["messages"] for piece in texts(message["content"]))


def texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content if block["type"] == "text"]


@suite.check
async def text(target: Target) -> None:
    async with target.client() as client:
        create = stateless(target.agent, said("say:Howdy, partner!"))
        answer = await client.create_and_wait_for_stateless_run_output(create)
        equal(answer.run.status, RunStatus.SUCCESS, "status")
        equal(whole(answer.output.actual_instance.values), "Howdy, partner!", "answer")


@suite.check
async def streaming(target: Target) -> None:
    async with target.client() as client:
        # Long enough for several samples, however many words are stored at once.
        events = await client.stream("create_and_stream_stateless_run_output", stateless(target.agent, said("count:25")))
        samples = [whole(event.data["values"]) for event in events if event.type == "values"]
        assert len(samples) > 2, f"nothing was streamed: {samples}"
        for shorter, longer in zip(samples, samples[1:]):
            assert longer.startswith(shorter), samples
        assert samples[-1].startswith(COUNTED) and samples[-1].endswith("24 "), samples[-1]
        equal(events[-1].status, "success", "status")


@suite.check
async def image(target: Target) -> None:
    async with target.client() as client:
        answer = await client.create_and_wait_for_stateless_run_output(stateless(target.agent, said("image")))
        messages = answer.output.actual_instance.values["messages"]
        blocks = [block for message in messages for block in message["content"] if block["type"] == "image"]
        equal([block["metadata"]["content"] for block in blocks], [PIXEL], "images")


@suite.check_if(has_faces)
async def question(target: Target) -> None:
    async with target.client() as client:
        thread = await new_thread(client)
        answer = await client.create_and_wait_for_thread_run_output(thread, stateful(target.agent, said("ask")))
        equal(answer.run.status, RunStatus.INTERRUPTED, "status")
        assert answer.output.actual_instance.interrupt, "the interrupt says nothing"
        heard = await target.faces.answer_through(OTHER, thread)
        answer = await client.wait_for_thread_run_output(thread, answer.run.run_id)
        equal(answer.run.status, RunStatus.SUCCESS, "status")
        spoken = whole(answer.output.actual_instance.values)
        assert "heard" in spoken and heard in spoken, spoken


@suite.check_if(has_faces)
async def question_answered_here(target: Target) -> None:
    async with target.client() as client:
        thread = await new_thread(client)
        answer = await client.create_and_wait_for_thread_run_output(thread, stateful(target.agent, said("ask")))
        data, heard = await target.faces.data_for(thread)
        await client.resume_thread_run(thread, answer.run.run_id, data)
        answer = await client.wait_for_thread_run_output(thread, answer.run.run_id)
        assert heard in whole(answer.output.actual_instance.values), answer.output


@suite.check_if(has_faces)
async def cancellation(target: Target) -> None:
    async with target.client() as client:
        thread = await new_thread(client)
        run = await client.create_thread_run(thread, stateful(target.agent, said("slow")))
        await target.faces.cancel_through(OTHER, thread)
        run = await settled(lambda: client.get_thread_run(thread, run.run_id), RunStatus.ERROR)


@suite.check
async def error(target: Target) -> None:
    async with target.client() as client:
        answer = await client.create_and_wait_for_stateless_run_output(stateless(target.agent, said("fail")))
        equal(answer.run.status, RunStatus.ERROR, "status")
        assert FAILURE in answer.output.actual_instance.description, answer.output


@suite.check_if(has_faces)
async def memory(target: Target) -> None:
    async with target.client() as client:
        thread = await new_thread(client)
        await target.faces.say_through(OTHER, target.agent, thread, "say:my name is Ada")
        answer = await client.create_and_wait_for_thread_run_output(thread, stateful(target.agent, said("recall")))
        spoken = whole(answer.output.actual_instance.values)
        assert "my name is Ada" in spoken, spoken
