"""The reference server with an echo agent: the peer of a benchmark.

    python serve.py PORT
"""

import sys
from collections.abc import AsyncIterator

from acp_sdk.models import Message
from acp_sdk.server import Context, Server

server = Server()


@server.agent()
async def echo(input: list[Message], context: Context) -> AsyncIterator[Message]:
    for message in input:
        yield message


if __name__ == "__main__":
    server.run(port=int(sys.argv[1]), self_registration=False, access_log=False, log_level="warning")
