"""Drives a server through the official Python client of the Agent Connect Protocol, and checks every response.

    python main.py --url URL [--key KEY] [--client sync|async] [--as-documented] [--agent NAME --base URL] [--only TEXT] SUITE...

Suites: agents, stateless, threads, thread_runs, streams, scenarios; builtin (needs --key); bridge (needs --agent and --base);
`begin` and `finish JSON` before and after a restart. Each runs with the blocking and with
the asynchronous client unless one is named. Exits with 1 when a check failed.
"""

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "shared"))

import agents
import bridge
import builtin
import restart
import scenarios
import stateless
import streams
import thread_runs
import threads
from check import Tally
from faces import Faces
from target import Target, agent_id

SUITES = [
    agents.suite,
    stateless.suite,
    threads.suite,
    thread_runs.suite,
    streams.suite,
    scenarios.suite,
    builtin.suite,
    bridge.suite,
]


async def main() -> int:
    parser = argparse.ArgumentParser(description="drives a server through the official Python client")
    parser.add_argument("--url", required=True, help="base address of the server, with its prefix")
    parser.add_argument("--key", help="an API key")
    parser.add_argument("--client", choices=["sync", "async"], help="only this one of the clients")
    parser.add_argument("--as-documented", action="store_true", help="the server answers as the document has it")
    parser.add_argument("--agent", help="the agent that does what its prompts say")
    parser.add_argument("--base", help="where the server has its other protocols too")
    parser.add_argument("--only", help="runs only checks whose name contains this")
    parser.add_argument("suites", nargs="+", metavar="SUITE")
    arguments = parser.parse_args()
    kinds = [arguments.client] if arguments.client else ["sync", "async"]
    if arguments.suites == ["begin"]:
        await restart.begin(Target(arguments.url, arguments.key))
        return 0
    if arguments.suites[0] == "finish":
        await restart.finish(Target(arguments.url, arguments.key), arguments.suites[1])
        return 0
    tally = Tally(SUITES)
    for kind in kinds:
        target = Target(
            arguments.url, arguments.key, is_async=kind == "async", as_documented=arguments.as_documented
        )
        target.agent = arguments.agent
        target.faces = Faces(arguments.base, arguments.key) if arguments.base else None
        if arguments.suites not in (["builtin"], ["bridge"]):
            target.echo = await agent_id(target, "org.agntcy.echo")
        await tally.run(arguments.suites, target, arguments.only, f" ({kind})")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
