"""Throughput and p99 by `max_delay`: `python -m tests.benchmarks.batching.delays docs/howto/batches.png`.

One row of 4 KiB per request, batches of up to 64 rows, and from 1 to 64 connections. The servers take turns. A point is
the median of all rounds.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.benchmarks import wrk
from tests.benchmarks.batching.__main__ import request_of, serving
from tests.benchmarks.peers import tool
from tests.benchmarks.plots import draw_panels

_DELAYS = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01)
_CONNECTIONS = (1, 16, 48, 64)


def main() -> None:
    """Measure, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="of the PNG")
    parser.add_argument("--seconds", type=int, default=3, help="of each run (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="of all servers in turn (default: 3)")
    options = parser.parse_args()
    program = tool("wrk", "wrk")
    found: dict[tuple[int, float], list[wrk.Run]] = {}
    with tempfile.TemporaryDirectory() as work, ExitStack() as stack:
        servers = {delay: stack.enter_context(serving("streamcodec", 1024, delay)) for delay in _DELAYS}
        for _ in range(options.rounds):
            for delay, server in servers.items():
                requests = wrk.write(Path(work), [request_of("streamcodec", server, 1024)])
                for count in _CONNECTIONS:
                    run = wrk.run(program, server, requests, connections=count, seconds=options.seconds)
                    found.setdefault((count, delay), []).append(run)
    panels: dict[str, dict[str, list[float]]] = {"requests per second": {}, "p99, ms": {}}
    for count in _CONNECTIONS:
        name = f"{count} connection{'s'[: count > 1]}"
        runs = [found[count, delay] for delay in _DELAYS]
        panels["requests per second"][name] = [median(run.rate for run in each) for each in runs]
        panels["p99, ms"][name] = [median(run.p99 * 1e3 for run in each) for each in runs]
    for quantity, curves in panels.items():
        for name, values in curves.items():
            print(f"{quantity}, {name}:", *(f"{value:,.1f}" for value in values))
    cases = [f"{delay * 1e3:g} ms" for delay in _DELAYS]
    draw_panels("One row per request, by max_delay", cases, panels, options.path)


if __name__ == "__main__":
    main()
