"""The SDK's transports to an agent that is reached by its address."""

import os
from typing import Any


def is_address(word: str) -> bool:
    return word.startswith(("ws://", "http://"))


async def open_transport(url: str) -> Any:
    """The transport for the address's scheme, with the token of the environment."""
    headers = {"Authorization": f"Bearer {os.environ['TRILOGUE_TOKEN']}"}
    if url.startswith("ws://"):
        from acp.ws.client import create_websocket_stream

        return await create_websocket_stream(url, headers=headers)
    from acp.http.client import create_http_stream

    return create_http_stream(url, headers=headers)
