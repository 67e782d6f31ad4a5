"""The reference server with an agent that does what its prompts say; Trilogue's server runs in front of it.

    python agent.py PORT

`say:TEXT` and `count:NUMBER` answer in pieces, `image` sends an image, `broken` one that is not base64, `ask` awaits
a message, `slow` runs until it is cancelled, `fail` fails, `recall` repeats the user's earlier messages.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "shared"))

from acp_sdk.models import ACPError, Error, ErrorCode, Message, MessageAwaitRequest, MessagePart
from acp_sdk.server import Context, Server

from words import FAILURE, PAUSE, PIXEL

server = Server()


@server.agent(input_content_types=["text/plain"], output_content_types=["text/plain", "image/png"])
async def words(input: list[Message], context: Context) -> AsyncIterator[object]:
    """Does what its prompts say."""
    word, _, rest = str(input[-1]).partition(":")
    if word == "say":
        middle = (len(rest) + 1) // 2
        yield rest[:middle]
        yield rest[middle:]
    elif word == "count":
        for number in range(int(rest)):
            await asyncio.sleep(PAUSE)
            yield f"{number} "
    elif word == "image":
        yield MessagePart(content_type="image/png", content_encoding="base64", content=PIXEL)
    elif word == "broken":
        yield MessagePart(content_type="image/png", content_encoding="base64", content="%%%")
    elif word == "ask":
        answer = yield MessageAwaitRequest(message=Message(role="agent", parts=[MessagePart(content="Shall I go on?")]))
        yield f"heard {answer.message}"
    elif word == "slow":
        while True:
            await asyncio.sleep(PAUSE)
            yield "tick "
    elif word == "fail":
        raise ACPError(Error(code=ErrorCode.INVALID_INPUT, message=FAILURE))
    elif word == "recall":
        earlier = [message async for message in context.session.load_history()]
        yield "; ".join(str(message) for message in earlier if message.role == "user")
    else:
        yield str(input[-1])


if __name__ == "__main__":
    server.run(port=int(sys.argv[1]), self_registration=False, access_log=False, log_level="warning")
