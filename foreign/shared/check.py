"""Named checks: each runs separately, prints one line, and fails alone."""

import asyncio
import json
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable

# The time limit for one check, in seconds.
CHECK_LIMIT = 60.0

Check = Callable[[object], Awaitable[None]]


class Suite:
    """Checks in the order in which they were declared."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[tuple[Check, Callable[[object], bool]]] = []

    def check(self, function: Check) -> Check:
        self.checks.append((function, lambda _: True))
        return function

    def check_if(self, applies: Callable[[object], bool]) -> Callable[[Check], Check]:
        """Declares a check of a feature that only some targets promise."""

        def declare(function: Check) -> Check:
            self.checks.append((function, applies))
            return function

        return declare

    async def run(self, target: object, only: str | None = None, label: str = "") -> tuple[int, int]:
        """Runs the checks that apply; returns how many ran and how many failed."""
        ran, failed = 0, 0
        for function, applies in self.checks:
            name = f"{self.name}.{function.__name__}{label}"
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
                if getattr(error, "data", None) is not None:
                    print(json.dumps(error.data, default=str), flush=True)
            else:
                print(f"ok {name} ({(time.monotonic() - begun) * 1000:.0f} ms)", flush=True)
        return ran, failed


class Tally:
    """How many checks ran and how many failed, over all suites."""

    def __init__(self, suites: Iterable[Suite]) -> None:
        self.suites = {suite.name: suite for suite in suites}
        self.ran, self.failed = 0, 0

    async def run(self, names: list[str], target: object, only: str | None = None, label: str = "") -> None:
        """Runs the suites with these names."""
        for name in names:
            if name not in self.suites:
                raise SystemExit(f"unknown suite {name}: choose from {', '.join(self.suites)}")
            ran, failed = await self.suites[name].run(target, only, label)
            self.ran, self.failed = self.ran + ran, self.failed + failed

    def finish(self) -> int:
        """Prints the totals; returns the exit code."""
        print(f"{self.ran} checks ran, {self.failed} failed", flush=True)
        return 1 if self.failed or not self.ran else 0


def equal(seen: object, wanted: object, what: str = "value") -> None:
    """Fails with both values if they differ."""
    if seen != wanted:
        raise AssertionError(f"the {what} is {seen!r}, not {wanted!r}")
