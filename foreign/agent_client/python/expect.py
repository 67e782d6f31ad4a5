"""Assertions about an agent."""

import re
from collections.abc import Awaitable

import acp

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def is_uuid(seen: object, what: str) -> None:
    """Fails unless this is a UUID in lower case."""
    assert isinstance(seen, str) and UUID.fullmatch(seen), f"the {what} is {seen!r}, no UUID"


async def refused(call: Awaitable[object], *codes: int) -> acp.RequestError:
    """The error of a call that must be refused with one of these codes."""
    try:
        answer = await call
    except acp.RequestError as error:
        assert error.code in codes, f"the code of {error} is {error.code}, none of {codes}: {error.data}"
        assert str(error), "the error has no message"
        return error
    raise AssertionError(f"the call was answered: {answer!r}")
