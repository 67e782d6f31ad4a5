"""The reference server with the agents of the official end-to-end suite and of the official example.

    python suite_agents.py PORT

The example's agent has the name `example_NAME` here, because the suite has one of the same name.
"""

import re
import sys

from acp_sdk.models import Message
from acp_sdk.server import Server

from official import SOURCE, import_suite

FENCE = re.compile(r"```py\n(.*?)```", re.DOTALL)


class CollectingServer(Server):
    """Collects its agents for another server instead of running."""

    started: list[Server] = []

    def run(self, **_: object) -> None:
        self.started.append(self)


def agents_of_suite() -> list[object]:
    import_suite()
    from e2e.fixtures import server as fixtures

    fixtures.Server, fixtures.time.sleep = CollectingServer, lambda _: None
    # The fixture starts its server in a thread before it yields.
    next(fixtures.server.__wrapped__(None, None))
    return wait_for_agents()


def agents_of_example() -> list[object]:
    """The first example of the official documentation that starts a server."""
    examples = FENCE.findall((SOURCE / "README.md").read_text())
    code = next(example for example in examples if "server.run" in example)
    exec(compile(code, "README.md", "exec"), {"Server": CollectingServer, "Message": Message})  # noqa: S102
    return wait_for_agents()


def wait_for_agents() -> list[object]:
    while not CollectingServer.started:
        pass
    return CollectingServer.started.pop().agents


def renamed(agent: object) -> object:
    name = f"example_{agent.name}"
    return type(agent.__class__.__name__, (agent.__class__,), {"name": property(lambda _: name)})()


if __name__ == "__main__":
    server = Server()
    server.register(*agents_of_suite(), *map(renamed, agents_of_example()))
    server.run(port=int(sys.argv[1]), self_registration=False, access_log=False, log_level="warning")
