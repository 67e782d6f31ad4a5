"""Authentication, and an agent that asks before it acts."""

from acp import schema

from check import Suite, equal
from expect import refused
from editor import Target, choice

auth = Suite("auth")
asking = Suite("asking")

LETTER = "Write to ada@example.com about the report: it is ready."


@auth.check
async def authenticate_first(target: Target) -> None:
    async with target.open() as editor:
        equal([method.id for method in editor.hello.auth_methods], ["key"], "methods")
        await refused(editor.new_session(), -32000)
        await refused(editor.agent.authenticate(method_id="none"), -32602)
        await editor.agent.authenticate(method_id="key")
        made = await editor.new_session()
        turn = await editor.prompt(made.session_id, "say:in")
        equal(turn.said, "in")


@asking.check
async def leave_is_given(target: Target) -> None:
    async with target.open() as editor:
        made = await editor.new_session()
        turn = await editor.prompt(made.session_id, LETTER)
        equal(len(editor.asked), 1, "number of questions")
        equal(turn.stop_reason, "end_turn")


@asking.check
async def leave_is_refused(target: Target) -> None:
    async with target.open() as editor:
        editor.choose = lambda options: choice(options, "reject_once", "reject_always")
        editor.fill = lambda _: schema.DeclineElicitationResponse(action="decline")
        made = await editor.new_session()
        turn = await editor.prompt(made.session_id, LETTER)
        equal(len(editor.asked), 1, "number of questions")
        assert turn.stop_reason in ("end_turn", "cancelled", "refusal"), turn.stop_reason


@asking.check
async def cancel_while_it_asks(target: Target) -> None:
    async with target.open() as editor:
        session_id = (await editor.new_session()).session_id

        async def cancelled(answer: object) -> object:
            await editor.agent.cancel(session_id=session_id)
            return answer

        editor.choose = lambda _: cancelled(schema.DeniedOutcome(outcome="cancelled"))
        editor.fill = lambda _: cancelled(schema.CancelElicitationResponse(action="cancel"))
        turn = await editor.prompt(session_id, LETTER)
        equal(turn.stop_reason, "cancelled")
