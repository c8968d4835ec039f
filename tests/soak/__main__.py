"""A soak by one command: `python -m tests.soak --seconds 600`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.soak.soaking import Plan, soak

_DESCRIPTION = """\
Run the server under a memory limit, with many connections that send good, bad, slow, cut and huge requests, and see
whether it keeps what is promised. Prints a table; ends with status 1 if a promise was broken.
"""


def main() -> None:
    """Soak."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=_DESCRIPTION)
    loops = ["asyncio", "uvloop", "trio"]
    best = "asyncio" if find_spec("uvloop") is None else "uvloop"
    parser.add_argument("--seconds", type=float, default=60, help="of load (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, help="seconds of load before (default: a fifth, 30 at least)")
    parser.add_argument("--connections", type=int, default=200, help="at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what connections do (default: %(default)s)")
    parser.add_argument("--loop", choices=loops, default=best, help="event loop of the server (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=0.1, help="mean seconds between two acts (default: %(default)s)")
    parser.add_argument("--memory-mib", type=int, default=80, help="for requests in flight (default: %(default)s)")
    parser.add_argument("--max-health-ms", type=float, default=50, help="at p99 (default: %(default)s)")
    parser.add_argument("--max-stall-ms", type=float, default=10, help="of CPU at once on the event loop (default: 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found here, too")
    arguments = vars(parser.parse_args())
    file = arguments.pop("json")
    if arguments["connections"] < 2:
        parser.error("two processes share the connections: --connections is 2 or more")
    if arguments["warm_up"] is None:
        arguments["warm_up"] = max(30, arguments["seconds"] / 5)
    with tempfile.TemporaryDirectory() as folder:
        report = soak(Plan(**arguments), Path(folder))
    print(report.table())
    if file is not None:
        file.write_text(json.dumps(report.document(), indent=2) + "\n")
    sys.exit(0 if report.is_kept else 1)


if __name__ == "__main__":
    main()
