"""Drives an agent with a client on the official SDK: main.py [OPTIONS] SUITE… -- COMMAND…"""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "shared"))

import bridge
import more
import script
import session
from check import Tally
from editor import Target
from faces import Faces

SUITES = [session.suite, script.suite, more.auth, more.asking, bridge.suite]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cwd", required=True, help="the folder that sessions work in")
    parser.add_argument("--trilogue", action="store_true", help="ask for what we promise")
    parser.add_argument("--plain", action="store_true", help="leave out the words that only our example agents know")
    parser.add_argument("--name", help="the agent's name")
    parser.add_argument("--prompt", default="hello", help="what is said to an agent that takes no orders")
    parser.add_argument("--base", help="where the server has its other protocols: for `bridge`")
    parser.add_argument("--token", help="what the other protocols want")
    parser.add_argument("--only", help="run the checks with this in their names")
    parser.add_argument("suites", nargs="+", metavar="SUITE")
    split = sys.argv.index("--")
    options = parser.parse_args(sys.argv[1:split])
    target = Target(
        command=sys.argv[split + 1 :],
        cwd=options.cwd,
        name=options.name,
        prompt=options.prompt,
        is_trilogue=options.trilogue,
        has_ids=options.trilogue or options.name == "official-seed",
        has_vocabulary=not options.plain,
        faces=Faces(options.base, options.token) if options.base else None,
    )
    tally = Tally(SUITES)
    await tally.run(options.suites, target, options.only)
    return tally.finish()


if __name__ == "__main__":
    # The SDK logs errors from peers; failed checks report them already.
    logging.disable(logging.CRITICAL)
    sys.exit(asyncio.run(main()))
