"""Drives a server through the official Python client, and checks every response.

    python main.py --url URL [--token TOKEN] [--peer URL]... [--agent NAME --base URL] [--only TEXT] SUITE...

Suites: agents, runs, errors, sessions, distributed (needs --peer), builtin (needs --token),
bridge (needs --agent and --base);
`begin` and `finish JSON` before and after a restart. Exits with 1 when a check failed.
"""

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "shared"))

import agents
import bridge
import builtin
import errors
import restart
import runs
import sessions
from check import Tally
from faces import Faces
from target import Target

SUITES = [
    agents.suite,
    runs.suite,
    errors.suite,
    sessions.suite,
    sessions.distributed,
    builtin.suite,
    bridge.suite,
]


async def main() -> int:
    parser = argparse.ArgumentParser(description="drives a server through the official Python client")
    parser.add_argument("--url", required=True, help="base address of the server, with its prefix")
    parser.add_argument("--token", help="a bearer token")
    parser.add_argument("--peer", action="append", default=[], help="base address of a further server")
    parser.add_argument("--agent", help="the agent that does what its prompts say")
    parser.add_argument("--base", help="where the server has its other protocols too")
    parser.add_argument("--only", help="runs only checks whose name contains this")
    parser.add_argument("suites", nargs="+", metavar="SUITE")
    arguments = parser.parse_args()
    target = Target(arguments.url, arguments.token, arguments.peer)
    if arguments.suites == ["begin"]:
        await restart.begin(target)
        return 0
    if arguments.suites[0] == "finish":
        await restart.finish(target, arguments.suites[1])
        return 0
    target.agent = arguments.agent
    target.faces = Faces(arguments.base, arguments.token) if arguments.base else None
    tally = Tally(SUITES)
    await tally.run(arguments.suites, target, arguments.only)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
