"""Generates requests from the official OpenAPI document of the Agent Connect Protocol, and checks every response.

    python main.py --url URL --document FILE --seed NUMBER [--examples NUMBER] [--errors]

No response may be a 5xx, and each must have a status, a content type and a body that the document
defines for its operation. Bodies of errors are compared with the document only with --errors: otherwise
they must be the server's own, with a code. Exits with 1 if a response differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "documented_shape"]
PHASES = ["examples", "coverage", "fuzzing"]
# The time limit for one response, in seconds.
ANSWER_LIMIT = 20


def main() -> int:
    parser = argparse.ArgumentParser(description="makes requests up from an OpenAPI document")
    parser.add_argument("--url", required=True, help="base address of the server, with its prefix")
    parser.add_argument("--document", required=True, type=Path, help="the OpenAPI document")
    parser.add_argument("--seed", required=True, type=int, help="the same gives the same requests")
    parser.add_argument("--examples", type=int, default=50, help="requests made up for each operation")
    parser.add_argument("--errors", action="store_true", help="hold bodies of errors against the document too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        environment = os.environ | {
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "SCHEMATHESIS_HOOKS": "hooks",
            "FUZZ_COUNTS": str(counts),
            "FUZZ_DOCUMENT": str(arguments.document.resolve()),
            "FUZZ_SEED": str(arguments.seed),
            "FUZZ_ERRORS": "1" if arguments.errors else "",
        }
        command = [sys.executable, "-m", "schemathesis.cli", "run", str(arguments.document.resolve())]
        command += ["--url", arguments.url, "--no-color", "--continue-on-failure", "--no-shrink"]
        command += ["--seed", str(arguments.seed), "--generation-database", "none"]
        command += ["--max-examples", str(arguments.examples), "--request-timeout", str(ANSWER_LIMIT)]
        command += ["--checks", ",".join(CHECKS), "--phases", ",".join(PHASES)]
        command += ["--suppress-health-check", "all", "--warnings", "off", "--workers", "1"]
        ended = subprocess.run(command, cwd=folder, env=environment, check=False)
        if not counts.exists():
            print("nothing was counted", flush=True)
            return 1
        seen = json.loads(counts.read_text())
    print(f"operations tested: {len(seen['operations'])}")
    for kind in ["2xx", "4xx", "5xx"]:
        print(f"answers with {kind}: {seen['kinds'].get(kind, 0)}")
    print(f"seconds: {seen['seconds']:.0f}", flush=True)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
