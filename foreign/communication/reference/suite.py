"""Runs the official end-to-end suite, unmodified, through servers in front of the suite's own.

    python suite.py --behind PORT PORT PORT --front PORT PORT PORT

The suite starts one server of the official library, and two more for sessions that move. They listen on the ports of
`--behind`; the suite's client uses the ports of `--front` instead. Stores that need another program are skipped,
because they belong to the server behind. Exits with 1 unless every check has passed.
"""

import argparse
import sys
import time

import httpx
import pytest
import uvicorn

from acp_sdk.server import Server

from official import SUITE, import_suite

# The time limit until the servers in front serve the agents behind them, in seconds.
READY_LIMIT = 30.0


class Front:
    """Replaces the port of each of the suite's servers, and its address by that of the server in front."""

    def __init__(self, behind: list[int], front: list[int]) -> None:
        self.behind, self.front = behind, front
        self.started: list[tuple[Server, int]] = []
        self.outcomes: dict[str, list[str]] = {}

    def install(self) -> None:
        from e2e.config import Config

        Config.PORT = self.front[0]
        run, startup = Server.run, uvicorn.Server.startup

        def run_behind(server: Server, *arguments: object, port: int, **options: object) -> None:
            place = port - Config.PORT
            self.started.append((server, place))
            run(server, *arguments, port=self.behind[place], **options)

        async def startup_behind(server: uvicorn.Server, *arguments: object, **options: object) -> None:
            await startup(server, *arguments, **options)
            # The suite reads the server's address here.
            server.config.port = self.front[self.behind.index(server.config.port)]

        Server.run, uvicorn.Server.startup = run_behind, startup_behind

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: object, request: object) -> object:
        self.started = []
        result = yield
        for server, place in self.started:
            for agent in server.agents:
                self.wait_for(agent, place)
        return result

    def wait_for(self, agent: object, place: int) -> None:
        """Waits until the server behind responds, and the one in front serves its agent unchanged."""
        deadline = time.monotonic() + READY_LIMIT
        wanted = (agent.input_content_types, agent.output_content_types, None)
        front = f"http://localhost:{self.front[place]}"
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{self.behind[place]}/ping", trust_env=False)
                manifest = httpx.get(f"{front}/agents/{agent.name}", trust_env=False).json()
                known = httpx.get(f"{front}/api/v1/agents/{agent.name}", trust_env=False).json()
                types = [manifest.get(f"{way}_content_types") for way in ("input", "output")]
                seen = (*types, known.get("unavailable"))
            except httpx.TransportError as error:
                seen = repr(error)
            if seen == wanted:
                return
            assert time.monotonic() < deadline, f"{agent.name} at {front} is {seen}, not {wanted}"
            time.sleep(0.05)

    def pytest_runtest_logreport(self, report: object) -> None:
        """Records each check's result; any result but `passed` in every phase is a failure, including a skip."""
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        self.outcomes.setdefault(report.nodeid, []).append(outcome)

    def finish(self) -> int:
        failed = {name for name, outcomes in self.outcomes.items() if outcomes != ["passed"] * 3}
        for name in sorted(failed):
            print(f"NOT PASSED {name}: {self.outcomes[name]}", flush=True)
        print(f"{len(self.outcomes)} checks ran, {len(failed)} failed", flush=True)
        return 1 if failed or not self.outcomes else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="runs the official suite through servers in front of its own")
    parser.add_argument("--behind", type=int, nargs=3, required=True)
    parser.add_argument("--front", type=int, nargs=3, required=True)
    parser.add_argument("--only", help="runs only checks whose name contains this")
    arguments = parser.parse_args()
    import_suite()
    front = Front(arguments.behind, arguments.front)
    front.install()
    only = " and ".join(["not redis", "not postgres", *filter(None, [arguments.only])])
    options = ["-c", str(SUITE.parent / "pytest.ini"), "-p", "no:cacheprovider", "-k", only, "--tb=short"]
    code = pytest.main([*options, "-W", "ignore", str(SUITE / "e2e")], plugins=[front])
    return front.finish() or int(code)


if __name__ == "__main__":
    sys.exit(main())
