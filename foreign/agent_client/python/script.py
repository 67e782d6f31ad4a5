"""Checks of an agent that follows its prompts: updates of every kind, questions, files, terminals, cancellations."""

import asyncio
import os
from pathlib import Path
from typing import Any

from acp import schema

from check import Suite, equal
from expect import refused
from editor import Editor, Target, Turn, choice, messages

suite = Suite("script")


def knows_all(target: Target) -> bool:
    return target.has_vocabulary


async def take(target: Target, prompt: Any, **settings: Any) -> tuple[Turn, Editor]:
    """A turn in a new session. If the target promises that, loading the session replays the same."""
    async with target.open() as editor:
        for name, value in settings.items():
            setattr(editor, name, value)
        session_id = (await editor.new_session()).session_id
        turn = await editor.prompt(session_id, prompt)
        if target.is_trilogue:
            async with target.open() as second:
                await second.load(session_id)
                told = [told_of(each.updates(session_id)) for each in (second, editor)]
                equal(told[0], told[1], "replay")
        return turn, editor


def told_of(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [update for update in updates if update["sessionUpdate"] != "user_message_chunk"]


@suite.check
async def say(target: Target) -> None:
    turn, _ = await take(target, "say:hello world")
    equal(turn.stop_reason, "end_turn")
    [(name, text)] = messages(turn.updates)
    equal(text, "hello world")
    assert name, "the message has no id"


@suite.check
async def two_messages_in_a_row(target: Target) -> None:
    turn, _ = await take(target, "two")
    (one, _), (two, _) = messages(turn.updates)
    assert one != two, "two messages have one id"


@suite.check
async def thought(target: Target) -> None:
    turn, _ = await take(target, "think:hm")
    [(name, text)] = messages(turn.updates, "agent_thought_chunk")
    equal(text, "hm")
    assert name not in dict(messages(turn.updates)), "a thought has a message's id"


@suite.check
async def tool_call(target: Target) -> None:
    turn, editor = await take(target, "tool")
    [call] = [update for update in turn.updates if update["sessionUpdate"] == "tool_call"]
    changes = [update for update in turn.updates if update.get("toolCallId") == call["toolCallId"]]
    equal(changes[-1]["status"], "completed")
    diffs = [item for change in changes for item in change.get("content") or [] if item["type"] == "diff"]
    assert (diffs and diffs[0]["path"]) or not target.has_vocabulary, f"no diff in {changes}"
    assert any(isinstance(each, schema.ToolCallStart) for each in editor.typed)


@suite.check
async def permission_given(target: Target) -> None:
    turn, editor = await take(target, "permission")
    equal(len(editor.asked), 1, "number of questions")
    equal(turn.stop_reason, "end_turn")
    assert "once" in turn.said, turn.said


@suite.check
async def permission_refused(target: Target) -> None:
    turn, _ = await take(target, "permission", choose=lambda options: choice(options, "reject_once", "reject_always"))
    equal(turn.stop_reason, "end_turn")
    assert "once" not in turn.said and "always" not in turn.said, turn.said


@suite.check
async def cancel_while_it_asks(target: Target) -> None:
    async with target.open() as editor:
        session_id = (await editor.new_session()).session_id

        async def cancel() -> schema.DeniedOutcome:
            await editor.agent.cancel(session_id=session_id)
            await asyncio.sleep(0.3)
            return schema.DeniedOutcome(outcome="cancelled")

        editor.choose = lambda _: cancel()
        turn = await editor.prompt(session_id, "permission")
        equal(turn.stop_reason, "cancelled")
        turn = await editor.prompt(session_id, "say:still here")
        equal(turn.said, "still here")


@suite.check
async def elicitation(target: Target) -> None:
    turn, editor = await take(target, "ask-form")
    equal(len(editor.asked), 1, "number of questions")
    assert "Ada" in turn.said, turn.said
    declined, _ = await take(target, "ask-form", fill=lambda _: schema.DeclineElicitationResponse(action="decline"))
    assert "Ada" not in declined.said, declined.said


@suite.check
async def files_of_the_editor(target: Target) -> None:
    path = Path(target.cwd) / f"notes-{os.getpid()}.txt"
    path.write_text("from the editor")
    turn, _ = await take(target, f"read:{path}")
    assert "from the editor" in turn.said, turn.said
    turn, _ = await take(target, f"write:{path}:from the agent")
    equal(turn.stop_reason, "end_turn")
    equal(path.read_text(), "from the agent", "file")


@suite.check
async def a_terminal_of_the_editor(target: Target) -> None:
    turn, editor = await take(target, "term:echo out; exit 3")
    assert "out" in turn.said, turn.said
    assert "exit 3" in turn.said or not target.has_vocabulary, turn.said
    equal(len(editor.terminals), 0, "number of terminals that were not released")


@suite.check
async def slow_and_cancelled(target: Target) -> None:
    async with target.open() as editor:
        session_id = (await editor.new_session()).session_id
        slow = "slow" if target.has_vocabulary else "say:begun\nslow"
        prompt = asyncio.create_task(editor.prompt(session_id, slow))
        await editor.saw("a chunk", lambda each: "agent_message_chunk" in str(each.get("params")))
        await editor.agent.cancel(session_id=session_id)
        equal((await prompt).stop_reason, "cancelled")
        turn = await editor.prompt(session_id, "say:still here")
        equal(turn.said, "still here")


@suite.check
async def every_form_of_block(target: Target) -> None:
    turn, _ = await take(target, "blocks")
    blocks = [update["content"] for update in turn.updates if update["sessionUpdate"] == "agent_message_chunk"]
    types = {"blob" if "blob" in block.get("resource", {}) else block["type"] for block in blocks}
    equal(types, {"text", "image", "audio", "resource_link", "resource", "blob"}, "block types")
    assert any("annotations" in block for block in blocks), "no block is annotated"


@suite.check_if(knows_all)
async def blocks_of_a_prompt(target: Target) -> None:
    blocks = [
        {"type": "text", "text": "context", "annotations": {"audience": ["assistant"]}},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "b", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "AAEC"}},
        {"type": "text", "text": "got"},
    ]
    turn, _ = await take(target, blocks)
    equal(turn.said, "got text image audio resource_link resource resource text")


@suite.check_if(knows_all)
async def plans_commands_title_usage(target: Target) -> None:
    turn, _ = await take(target, "state")
    for kind in ("plan", "available_commands_update", "session_info_update", "usage_update"):
        assert kind in turn.kinds, f"{kind} in {turn.kinds}"


@suite.check_if(knows_all)
async def modes_and_options(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        equal(made.modes.current_mode_id, "ask")
        equal(made.config_options[0].current_value, "small")
        await editor.agent.set_session_mode(session_id=made.session_id, mode_id="code")
        await editor.saw("the mode", lambda each: "current_mode_update" in str(each.get("params")))
        await refused(editor.agent.set_session_mode(session_id=made.session_id, mode_id="none"), -32602)
        changed = await editor.agent.set_config_option(config_id="model", session_id=made.session_id, value="large")
        equal(changed.config_options[0].current_value, "large")
        turn = await editor.prompt(made.session_id, "say:in code")
        equal(turn.stop_reason, "end_turn")
