"""Makes the generated requests reach the agents: gives them existing names, and inputs that fit.

About a third of the requests keep their generated values, so that invalid input is still sent to every operation.
"""

import atexit
import json
import os
import random
import time
from collections import Counter, deque

import jsonschema_rs
import schemathesis
from schemathesis.checks import CHECKS

CHOICE = random.Random(int(os.environ["FUZZ_SEED"]))
CHECKS_ERRORS = bool(os.environ["FUZZ_ERRORS"])
with open(os.environ["FUZZ_DOCUMENT"], encoding="utf-8") as file:
    COMPONENTS = json.load(file)["components"]
STREAM_EVENT = jsonschema_rs.Draft202012Validator(
    {"$ref": "#/components/schemas/RunOutputStream", "components": COMPONENTS}
)
BEGUN = time.monotonic()

# Agents with inputs that fit them, and configurations.
AGENTS = [
    ("org.agntcy.echo", [{"messages": [{"type": "human", "content": "hi"}]}, {"messages": None}], [{"to_upper": True}]),
    ("3f1e2549-5799-4321-91ae-2a4881d55526", [{"message": "hi"}, {"message": "Please interrupt"}], [{"pause_ms": 0}]),
    ("3f1e2549-5799-4321-91ae-2a4881d55526", [{"message": "I don't feel too well."}], [{"pause_ms": 1}]),
    ("counter", [{"count": 2}, {"count": 3, "pause_ms": 5}], []),
]

# The existing ids, the newest last.
runs: deque[str] = deque(maxlen=20)
threads: deque[str] = deque(maxlen=10)
thread_runs: deque[tuple[str, str]] = deque(maxlen=20)
checkpoints: deque[str] = deque(maxlen=20)

operations: set[str] = set()
kinds: Counter[str] = Counter()


def likely() -> bool:
    return CHOICE.random() < 0.67


@schemathesis.hook
def before_call(context, case, kwargs) -> None:
    name_what_is_there(case)
    if isinstance(case.body, dict):
        if "run_create" in body_kind(case):
            case.body = fitting(case.body)
        if case.method == "PATCH" and checkpoints and likely():
            case.body = case.body | {"checkpoint": {"checkpoint_id": CHOICE.choice(checkpoints)}}


@schemathesis.hook
def after_call(context, case, response) -> None:
    operations.add(case.operation.label)
    kinds[f"{response.status_code // 100}xx"] += 1
    if response.status_code != 200:
        return
    try:
        body = response.json()
    except Exception:
        return
    for each in body if isinstance(body, list) else [body]:
        note(case, each)


def note(case, body: object) -> None:
    """Remembers the ids in a response."""
    if not isinstance(body, dict):
        return
    run = body.get("run") or body
    if not isinstance(run, dict):
        return
    if "checkpoint" in body:
        checkpoints.append(body["checkpoint"]["checkpoint_id"])
    elif "run_id" in run:
        if case.path.startswith("/threads"):
            thread_runs.append((run["thread_id"], run["run_id"]))
        else:
            runs.append(run["run_id"])
    elif "thread_id" in run:
        threads.append(run["thread_id"])


def name_what_is_there(case) -> None:
    parameters = case.path_parameters or {}
    if not parameters or not likely():
        return
    if "agent_id" in parameters:
        parameters["agent_id"] = CHOICE.choice(AGENTS)[0]
    if "run_id" in parameters and "thread_id" in parameters:
        if thread_runs:
            parameters["thread_id"], parameters["run_id"] = CHOICE.choice(thread_runs)
    elif "run_id" in parameters and runs:
        parameters["run_id"] = CHOICE.choice(runs)
    elif "thread_id" in parameters and threads:
        parameters["thread_id"] = CHOICE.choice(threads)
    if "before" in (case.query or {}) and checkpoints and likely():
        case.query["before"] = CHOICE.choice(checkpoints)


def body_kind(case) -> str:
    """`run_create` for the operations that take a new run."""
    path = case.operation.path
    takes_run = case.method == "POST" and path.endswith(("/runs", "/runs/wait", "/runs/stream"))
    return "run_create" if takes_run else ""


def fitting(body: dict) -> dict:
    """A run that an agent accepts, with the other generated members kept."""
    body = dict(body)
    after = body.get("after_seconds")
    # No check waits for a run that begins next year.
    if isinstance(after, int) and after > 0:
        body["after_seconds"] = 1 if CHOICE.random() < 0.1 else 0
    # Avoids names that may belong to other owners.
    if isinstance(body.get("webhook"), str):
        body["webhook"] = CHOICE.choice(["http://127.0.0.1:9/x", "ftp://127.0.0.1/x", "no address", ""])
    if not likely():
        return body
    agent, inputs, configurations = CHOICE.choice(AGENTS)
    body["agent_id"] = agent
    body["input"] = CHOICE.choice(inputs)
    body.pop("webhook", None)
    if likely() or not configurations:
        body.pop("config", None)
    else:
        body["config"] = {"configurable": CHOICE.choice(configurations)}
    if agent != "counter" and likely():
        body.pop("stream_mode", None)
    return body


@schemathesis.check
def documented_shape(ctx, response, case) -> None:
    if response.status_code == 200 and case.operation.path.endswith("/stream"):
        check_stream(response.text)
        return
    if response.status_code < 400 or CHECKS_ERRORS:
        (schema,) = CHECKS.get_by_names(["response_schema_conformance"])
        schema(ctx, response, case)
        return
    try:
        error = response.json()
    except ValueError:
        error = response.text
    assert isinstance(error, dict), f"the error is no object: {error!r}"
    missing = {"code", "errcode", "description", "transient"} - set(error)
    assert not missing, f"the error has no {missing}: {error!r}"
    shown = response.headers.get("x-acp-error-code")
    assert shown == [error["code"]], f"the header says {shown}, the body {error['code']}"


def check_stream(text: str) -> None:
    """Checks that each event, with its data parsed as JSON, matches the document, and that only the last ends the stream."""
    assert text.endswith("\n\n"), f"the stream breaks off: {text!r}"
    statuses = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        lines = [line.split(": ", 1) for line in block.split("\n") if not line.startswith(":")]
        event = dict(lines)
        event["data"] = json.loads(event["data"])
        for error in STREAM_EVENT.iter_errors(event):
            raise AssertionError(f"{error.message} in {event!r}")
        statuses.append(event["data"]["status"])
    assert "pending" not in statuses[-1:] and set(statuses[:-1]) <= {"pending"}, f"statuses {statuses}"


@atexit.register
def write_counts() -> None:
    counts = {"operations": sorted(operations), "kinds": kinds, "seconds": time.monotonic() - BEGUN}
    with open(os.environ["FUZZ_COUNTS"], "w", encoding="utf-8") as file:
        json.dump(counts, file)
