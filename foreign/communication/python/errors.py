"""Requests that the official client cannot send: the statuses and bodies of their errors."""

import json

from acp_sdk.models import Error

from check import Suite, equal
from target import Target

suite = Suite("errors")

PART = {"content_type": "text/plain", "content": "Hello!"}
MESSAGE = {"role": "user", "parts": [PART]}
UUID = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def request(**fields: object) -> dict[str, object]:
    return {"agent_name": "echo", "input": [MESSAGE], **fields}


def part(**fields: object) -> dict[str, object]:
    return message({**PART, **fields})


def message(*parts: dict[str, object]) -> dict[str, object]:
    return request(input=[{"role": "user", "parts": list(parts)}])


# The body, the status, and the error's code; a request that runs has no code.
RUNS: list[tuple[str, object, int, str | None]] = [
    ("no body", b"", 422, "invalid_input"),
    ("no JSON", b"{", 422, "invalid_input"),
    ("a list", [], 422, "invalid_input"),
    ("no agent", {"input": [MESSAGE]}, 422, "invalid_input"),
    ("no input", {"agent_name": "echo"}, 422, "invalid_input"),
    ("a message without parts", request(input=[{}]), 422, "invalid_input"),
    ("both contents", part(content_url="https://example.org/"), 422, "invalid_input"),
    ("a relative address", message({"content_type": "text/plain", "content_url": "a/b"}), 422, "invalid_input"),
    ("a number as content", part(content=123), 422, "invalid_input"),
    ("an object as content", part(content={}), 422, "invalid_input"),
    ("bad base64", part(content="?", content_encoding="base64"), 422, "invalid_input"),
    ("an unknown encoding", part(content_encoding="gzip"), 422, "invalid_input"),
    ("metadata without a kind", part(metadata={}), 422, "invalid_input"),
    ("metadata of an unknown kind", part(metadata={"kind": "x"}), 422, "invalid_input"),
    ("the role system", request(input=[{**MESSAGE, "role": "system"}]), 422, "invalid_input"),
    ("a role without a name", request(input=[{**MESSAGE, "role": "agent/"}]), 422, "invalid_input"),
    ("a role with a space", request(input=[{**MESSAGE, "role": "agent/a b"}]), 422, "invalid_input"),
    ("no role", request(input=[{"parts": [PART]}]), 422, "invalid_input"),
    ("null as role", request(input=[{**MESSAGE, "role": None}]), 422, "invalid_input"),
    ("no content type", message({"content": "Hello!"}), 422, "invalid_input"),
    ("null as content type", part(content_type=None), 422, "invalid_input"),
    ("no MIME type", part(content_type="zzz"), 422, "invalid_input"),
    ("a part of nothing", message({"content_type": "text/plain"}), 422, "invalid_input"),
    ("an artifact of nothing", message({"content_type": "text/plain", "name": "a"}), 422, "invalid_input"),
    ("an unknown mode", request(mode="turbo"), 422, "invalid_input"),
    ("no mode", request(mode=None), 422, "invalid_input"),
    ("a session id that is none", request(session_id="abc"), 422, "invalid_input"),
    ("another kind of history", request(session={"history": ["ftp://example.org/"]}), 422, "invalid_input"),
    ("two sessions", request(session_id=UUID, session={"id": OTHER}), 400, "invalid_input"),
    ("an unknown agent", request(agent_name="nobody"), 404, "not_found"),
    ("an agent in capitals", request(agent_name="ECHO"), 404, "not_found"),
    ("an unknown agent and a bad body", request(agent_name="nobody", mode="turbo"), 422, "invalid_input"),
    ("an unknown agent and two sessions",
     request(agent_name="nobody", session_id=UUID, session={"id": OTHER}), 404, "not_found"),
    ("nothing said", request(input=[]), 200, None),
    ("a message of no parts", message(), 200, None),
    ("a part of metadata",
     message({"content_type": "text/plain", "metadata": {"kind": "citation", "url": "u"}}), 200, None),
    ("base64 without padding", part(content="aGk", content_encoding="base64"), 200, None),
    ("a data address", message({"content_type": "text/plain", "content_url": "data:,x"}), 200, None),
    ("unknown keys", part(key="value"), 200, None),
    ("a session without id", request(session={"history": []}), 200, None),
]


@suite.check
async def bodies_of_runs(target: Target) -> None:
    wrong = []
    async with target.http() as http:
        for name, body, status, code in RUNS:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            # The official client sends no content type either.
            answer = await http.post("runs", content=content)
            seen = answer.json()
            if answer.status_code != status or seen.get("code") != code:
                wrong.append(f"{name}: {answer.status_code} {answer.text}")
            elif code is not None:
                Error.model_validate(seen)
                assert seen["message"], name
    assert not wrong, "\n".join(wrong)


@suite.check
async def errors_come_before_a_stream(target: Target) -> None:
    async with target.http() as http:
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        answer = await http.post("runs", json=request(mode="stream", agent_name="nobody"), headers=headers)
        equal((answer.status_code, answer.json()["code"]), (404, "not_found"), "answer")
        assert answer.headers["content-type"].startswith("application/json")


@suite.check
async def statuses_and_headers(target: Target) -> None:
    async with target.http() as http:
        answer = await http.post("runs", json=request())
        equal(answer.status_code, 200, "status of sync")
        run = answer.json()
        equal(answer.headers["run-id"], run["run_id"], "header")
        equal((await http.post("runs", json=request(mode="async"))).status_code, 202, "status of async")
        answer = await http.post("runs", json=request(mode="stream"))
        equal(answer.status_code, 200, "status of stream")
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers
        assert answer.text.endswith("\n\n")
        answer = await http.post(f"runs/{run['run_id']}/cancel")
        equal((answer.status_code, answer.json()["code"]), (403, "server_error"), "cancel of what ended")
        resume = {"await_resume": {"type": "message", "message": MESSAGE}, "mode": "sync"}
        answer = await http.post(f"runs/{run['run_id']}", json=resume)
        equal((answer.status_code, answer.json()["code"]), (403, "server_error"), "resume of what ended")
        answer = await http.post(f"runs/{run['run_id']}", json={"mode": "sync"})
        equal((answer.status_code, answer.json()["code"]), (422, "invalid_input"), "resume with nothing")
        awaiting = (await http.post("runs", json=request(agent_name="awaiter", mode="async"))).json()
        answer = await http.post(f"runs/{awaiting['run_id']}/cancel")
        equal((answer.status_code, answer.json()["status"]), (202, "cancelling"), "cancel")


@suite.check
async def routes_that_do_not_exist(target: Target) -> None:
    async with target.http() as http:
        for method, path, status, code in [
            ("GET", "nowhere", 404, "not_found"),
            ("GET", f"runs/{UUID}", 404, "not_found"),
            ("GET", f"sessions/{UUID}", 404, "not_found"),
            ("GET", f"resources/{UUID}", 404, "not_found"),
            ("DELETE", "agents", 405, "server_error"),
            ("PUT", "runs", 405, "server_error"),
            ("GET", "runs/no-uuid", 422, "invalid_input"),
            ("GET", "sessions/no-uuid", 422, "invalid_input"),
        ]:
            answer = await http.request(method, path)
            equal((answer.status_code, answer.json().get("code")), (status, code), f"answer to {method} {path}")
