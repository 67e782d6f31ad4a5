"""Named checks: each runs by itself, prints one line, and fails alone."""

import asyncio
import json
import re
import time
import traceback
from collections.abc import Awaitable, Callable

import acp

from editor import Target

# Seconds that one check may take.
CHECK_LIMIT = 60.0
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

Check = Callable[[Target], Awaitable[None]]


class Suite:
    """Checks in the order in which they were declared."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[tuple[Check, Callable[[Target], bool]]] = []

    def check(self, function: Check) -> Check:
        self.checks.append((function, lambda _: True))
        return function

    def check_if(self, applies: Callable[[Target], bool]) -> Callable[[Check], Check]:
        """A check of what not every target promises."""

        def declare(function: Check) -> Check:
            self.checks.append((function, applies))
            return function

        return declare

    async def run(self, target: Target, only: str | None = None) -> tuple[int, int]:
        """Runs the checks that apply; gives how many ran and how many failed."""
        ran, failed = 0, 0
        for function, applies in self.checks:
            name = f"{self.name}.{function.__name__}"
            if not applies(target) or (only is not None and only not in name):
                continue
            ran += 1
            begun = time.monotonic()
            try:
                await asyncio.wait_for(function(target), CHECK_LIMIT)
            except Exception as error:
                failed += 1
                print(f"FAILED {name}", flush=True)
                print(traceback.format_exc(), flush=True)
                if isinstance(error, acp.RequestError):
                    print(error.code, json.dumps(error.data), flush=True)
            else:
                print(f"ok {name} ({(time.monotonic() - begun) * 1000:.0f} ms)", flush=True)
        return ran, failed


def equal(seen: object, wanted: object, what: str = "value") -> None:
    """Fails with both sides when they differ."""
    if seen != wanted:
        raise AssertionError(f"the {what} is {seen!r}, not {wanted!r}")


def is_uuid(seen: object, what: str) -> None:
    """Fails unless this is a UUID in small letters."""
    assert isinstance(seen, str) and UUID.fullmatch(seen), f"the {what} is {seen!r}, no UUID"


async def refused(call: Awaitable[object], code: int) -> acp.RequestError:
    """The error of a call that must be refused with this code."""
    try:
        answer = await call
    except acp.RequestError as error:
        equal(error.code, code, f"code of {error}: {error.data}")
        assert str(error), "the error has no message"
        return error
    raise AssertionError(f"the call was answered: {answer!r}")
