"""The requests of the checks: inputs and runs of the agents."""

from agntcy_acp.models import Config, RunCreateStateful, RunCreateStateless, StreamingMode, StreamMode

# The id of the agent with known answers.
MOCK = "3f1e2549-5799-4321-91ae-2a4881d55526"
# The agent that counts, by its name on the server.
COUNTER = "counter"
# An id that no object has.
NOBODY = "00000000-0000-4000-8000-000000000000"

SKY = {"message": "What's the color of the sky?"}
BLUE = {"message": "The color of the sky is blue"}
INTERRUPT = {"message": "Please interrupt"}
ILL = {"message": "I don't feel too well."}
HELP = {"interrupt_message": "How can I help you?"}


def human(*texts: str) -> dict:
    """Messages of a human, in the form that the echo agent takes."""
    return {"messages": [{"type": "human", "content": text} for text in texts]}


def talk(*texts: str) -> dict:
    """Messages of a human and an assistant in turn."""
    kinds = ["human", "assistant"]
    return {"messages": [{"type": kinds[index % 2], "content": text} for index, text in enumerate(texts)]}


def stateless(agent_id: str | None, input: dict | None, config: dict | None = None, **more: object) -> RunCreateStateless:
    return RunCreateStateless(agent_id=agent_id, input=input, **configured(config), **moded(more))


def stateful(agent_id: str | None, input: dict | None, config: dict | None = None, **more: object) -> RunCreateStateful:
    return RunCreateStateful(agent_id=agent_id, input=input, **configured(config), **moded(more))


def counting(count: int, pause_ms: int = 0) -> dict:
    """The input of the counter."""
    return {"count": count, "pause_ms": pause_ms}


def endless() -> dict:
    """A count that lasts longer than the check."""
    return counting(10_000, 50)


def configured(config: dict | None) -> dict:
    return {} if config is None else {"config": Config(configurable=config)}


def moded(more: dict) -> dict:
    """The client requires its modes wrapped."""
    mode = more.pop("stream_mode", None)
    if mode is None:
        return more
    modes = [StreamingMode(each) for each in mode] if isinstance(mode, list) else StreamingMode(mode)
    return more | {"stream_mode": StreamMode(modes)}


def asked(create: RunCreateStateless | RunCreateStateful) -> dict:
    """A run's request without members that are null: a server may return them or not."""
    return {name: value for name, value in create.to_dict().items() if value is not None}
