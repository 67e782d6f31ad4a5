"""Checks that apply to every agent: sessions, turns, ids, replay."""

import asyncio
from datetime import datetime
from uuid import uuid4

from check import Suite, equal
from expect import is_uuid, refused
from editor import Target, messages

suite = Suite("session")


def promises(target: Target) -> bool:
    return target.is_trilogue


@suite.check
async def initialize(target: Target) -> None:
    async with target.open() as editor:
        equal(editor.hello.protocol_version, 1, "version")
        assert editor.hello.agent_capabilities.load_session
        if target.name:
            equal(editor.hello.agent_info.name, target.name, "agent's name")


@suite.check
async def prompt(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        turn = await editor.prompt(made.session_id, target.prompt)
        equal(turn.stop_reason, "end_turn")
        assert turn.said, "nothing was said"
        await asyncio.sleep(0)
        equal(len(editor.typed), len(editor.updates(made.session_id)), "updates that the SDK understood")
        if target.is_trilogue:
            is_uuid(made.session_id, "session's id")
            is_uuid(turn.result.get("userMessageId"), "id that the agent gave the prompt")
            for name, _ in messages(turn.updates):
                is_uuid(name, "id of a message")


@suite.check
async def prompt_with_an_id(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        name = str(uuid4())
        turn = await editor.prompt(made.session_id, target.prompt, name)
        equal(turn.stop_reason, "end_turn")
        if target.has_ids:
            equal(turn.result.get("userMessageId"), name, "id that was recorded")
        if target.is_trilogue:
            again = await editor.prompt(made.session_id, target.prompt, name)
            assert "userMessageId" not in again.result, f"a used id was recorded again: {again.result}"
            opaque = await editor.prompt(made.session_id, target.prompt, "msg_1")
            assert "userMessageId" not in opaque.result, f"no UUID, and recorded: {opaque.result}"


@suite.check
async def two_prompts_in_a_row(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        turns = [await editor.prompt(made.session_id, target.prompt) for _ in range(2)]
        for turn in turns:
            equal(turn.stop_reason, "end_turn")
            assert turn.said, "nothing was said"
        names = [name for turn in turns for name, _ in messages(turn.updates)]
        equal(len(set(names)), len(names), f"number of ids in {names}")


@suite.check
async def prompts_of_two_sessions_at_once(target: Target) -> None:
    async with target.open() as editor:
        ids = [(await editor.new_session()).session_id for _ in range(2)]
        text = [{"type": "text", "text": target.prompt}]
        calls = [editor.call("session/prompt", {"sessionId": each, "prompt": text}) for each in ids]
        for result in await asyncio.gather(*calls):
            equal(result["stopReason"], "end_turn")
        for each in ids:
            assert messages(editor.updates(each)), "a session said nothing"


@suite.check
async def load_replays(target: Target) -> None:
    name = str(uuid4())
    async with target.open() as editor:
        session_id = (await editor.new_session()).session_id
        turn = await editor.prompt(session_id, target.prompt, name)
        await editor.prompt(session_id, target.prompt)
    async with target.open() as editor:
        await editor.load(session_id)
        replayed = editor.updates(session_id)
        prompts = messages(replayed, "user_message_chunk")
        equal([text for _, text in prompts], [target.prompt] * 2, "prompts of the replay")
        if target.has_ids:
            equal(prompts[0][0], name, "id of the first prompt")
        live = messages(turn.updates)
        equal(messages(replayed)[: len(live)], live, "messages of the replay")
        again = await editor.prompt(session_id, target.prompt)
        equal(again.stop_reason, "end_turn")


@suite.check_if(promises)
async def resume_does_not_replay(target: Target) -> None:
    async with target.open() as editor:
        assert editor.hello.agent_capabilities.session_capabilities.resume is not None
        session_id = (await editor.new_session()).session_id
        await editor.prompt(session_id, target.prompt)
    async with target.open() as editor:
        await editor.agent.resume_session(session_id=session_id, cwd=target.cwd, mcp_servers=[])
        equal(messages(editor.updates(session_id)), [], "messages after resume")
        turn = await editor.prompt(session_id, target.prompt)
        equal(turn.stop_reason, "end_turn")


@suite.check
async def list_close_delete(target: Target) -> None:
    async with target.open() as editor:
        session_id = (await editor.new_session()).session_id
        await editor.prompt(session_id, target.prompt)

        async def listed() -> object:
            cursor = None
            while True:
                page = await editor.agent.list_sessions(cwd=target.cwd, cursor=cursor)
                for each in page.sessions:
                    if each.session_id == session_id:
                        return each
                cursor = page.next_cursor
                if cursor is None:
                    return None

        found = await listed()
        assert found, "the session is not in the list"
        equal(found.cwd, target.cwd, "folder in the list")
        if not target.is_trilogue:
            return
        datetime.fromisoformat(found.updated_at)
        await editor.agent.close_session(session_id=session_id)
        assert await listed(), "a closed session is gone from the list"
        for _ in range(2):
            equal(await editor.call("session/delete", {"sessionId": session_id}), {}, "answer to delete")
        equal(await listed(), None, "deleted session in the list")
        error = await refused(editor.load(session_id), -32002)
        equal(error.data["sessionId"], session_id)


@suite.check
async def what_is_unknown(target: Target) -> None:
    async with target.open() as editor:
        session_id = str(uuid4())
        await refused(editor.prompt(session_id, target.prompt), -32002)
        await refused(editor.load(session_id), -32002)
        await refused(editor.agent.ext_method("trilogue.test/none", {}), -32601)
        await editor.agent.cancel(session_id=session_id)
        made = await editor.new_session()
        turn = await editor.prompt(made.session_id, target.prompt)
        equal(turn.stop_reason, "end_turn")


@suite.check
async def cancel_when_idle(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        await editor.agent.cancel(session_id=made.session_id)
        turn = await editor.prompt(made.session_id, target.prompt)
        equal(turn.stop_reason, "end_turn")
