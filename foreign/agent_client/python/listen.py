"""Serves an agent with the server of the official SDK, over HTTP and over WebSockets."""

import socket

import uvicorn
from acp.http.asgi import create_asgi_app


def listen(make_agent) -> None:
    """Listens on a free port of this machine and prints its number; `make_agent` gets each connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(create_asgi_app(make_agent), log_level="critical", ws="websockets-sansio", lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])
