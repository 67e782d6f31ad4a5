"""An agent of any kind that does what its prompts say, through the official SDK and with help from the other protocols."""

import asyncio

from check import Suite, equal
from editor import Editor, Target
from expect import refused
from words import COUNTED, FAILURE, PIXEL

suite = Suite("bridge")


def has_faces(target: Target) -> bool:
    """Whether other protocols can help: not if the agent's own server is driven."""
    return target.faces is not None


# The protocols that answer, cancel and begin turns in place of this client.
ANSWERS, CANCELS, BEGINS = "connect", "communication", "communication"


@suite.check
async def text(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        turn = await editor.prompt(made.session_id, "say:Howdy, partner!")
        equal((turn.stop_reason, turn.said), ("end_turn", "Howdy, partner!"), "answer")


@suite.check
async def streaming(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        turn = await editor.prompt(made.session_id, "count:5")
        pieces = [each for each in turn.kinds if each == "agent_message_chunk"]
        assert len(pieces) > 1, f"nothing was streamed: {turn.updates}"
        equal((turn.stop_reason, turn.said), ("end_turn", COUNTED), "answer")


@suite.check
async def image(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        turn = await editor.prompt(made.session_id, "image")
        chunks = [update["content"] for update in turn.updates if update["sessionUpdate"] == "agent_message_chunk"]
        images = [(chunk["mimeType"], chunk["data"]) for chunk in chunks if chunk["type"] == "image"]
        equal(images, [("image/png", PIXEL)], "images")


def hesitates(editor: Editor) -> asyncio.Event:
    """Leaves every question unanswered until the event is set."""
    decided = asyncio.Event()

    async def never(*_: object) -> object:
        await decided.wait()
        raise AssertionError("the question was answered elsewhere")

    editor.choose = editor.fill = never
    return decided


@suite.check_if(has_faces)
async def question(target: Target) -> None:
    async with target.open() as editor:
        session = (await editor.new_session()).session_id
        hesitates(editor)
        turn = asyncio.create_task(editor.prompt(session, "ask"))
        heard = await target.faces.answer_through(ANSWERS, session)

        def says(message: dict) -> bool:
            update = (message.get("params") or {}).get("update") or {}
            text = (update.get("content") or {}).get("text", "") if isinstance(update.get("content"), dict) else ""
            return update.get("sessionUpdate") == "agent_message_chunk" and heard in text

        await editor.saw("what the agent heard", says)
        equal((await turn).stop_reason, "end_turn", "stop reason")
        # The question was a request of the agent, or it ended the turn as text.
        asked = [each["method"] for each in editor.messages if each.get("method") in REQUESTS]
        spoken = [each for each in editor.updates(session) if "go on" in str(each).lower()]
        assert asked or spoken, editor.messages


REQUESTS = ("session/request_permission", "elicitation/create")


@suite.check_if(has_faces)
async def question_answered_here(target: Target) -> None:
    async with target.open() as editor:
        session = (await editor.new_session()).session_id
        turn = await editor.prompt(session, "ask")
        said = turn.said
        if "heard" not in said:
            # The turn ended with the question: the next prompt answers it.
            words, _ = await target.faces.words_for(session)
            said = (await editor.prompt(session, words)).said
        assert "heard" in said, said


@suite.check_if(has_faces)
async def cancellation(target: Target) -> None:
    async with target.open() as editor:
        session = (await editor.new_session()).session_id
        turn = asyncio.create_task(editor.prompt(session, "slow"))
        await target.faces.cancel_through(CANCELS, session)
        equal((await turn).stop_reason, "cancelled", "stop reason")


@suite.check
async def error(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        # A server of another protocol has its own error numbers, which name no kind.
        raised = await refused(editor.prompt(made.session_id, "fail"), -32602, -32603)
        assert FAILURE in str(raised) or FAILURE in str(raised.data), (raised, raised.data)


@suite.check_if(has_faces)
async def memory(target: Target) -> None:
    async with target.open() as editor:
        session = (await editor.new_session()).session_id
        await target.faces.say_through(BEGINS, target.name, session, "say:my name is Ada")
        turn = await editor.prompt(session, "recall")
        assert "my name is Ada" in turn.said, turn.updates
