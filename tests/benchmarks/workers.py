"""Workers: the command with 1 and 2 processes, and Triton, asked over 64 connections by wrk.

    python -m tests.benchmarks.workers

Tensors of 64 B to 4 MiB go to `identity`, which is inline, and back; there is no access log. wrk runs on the same
processors as the servers, so two processes cannot have twice as much of them where there are two: CPU per request says
what another processor would bring.

Triton takes part if `STREAMCODEC_TRITON_PYTHON` says where it is. It is one process with its own threads, and its model
has two instances in C. It is started once, since it takes seconds to start, and is idle while others are asked. The
servers take turns, so that other work of the machine affects all of them alike.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.benchmarks import load, requests, wrk
from tests.benchmarks.peers import TRITON, Peers, Running, tool
from tests.processes import cpu_clock

SIZES: Final = {
    "64 B": 64,
    "4 KiB": 4 << 10,
    "16 KiB": 16 << 10,
    "64 KiB": 64 << 10,
    "128 KiB": 128 << 10,
    "256 KiB": 256 << 10,
    "600 KB": 602_112,
    "1 MiB": 1 << 20,
    "4 MiB": 4 << 20,
}
COUNTS: Final = (1, 2)
ROUNDS: Final = 3
SECONDS: Final = 2
CONNECTIONS: Final = 64


def _cpu(server: Running) -> float:
    """Return the CPU seconds of a server and its workers."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return sum(cpu_clock(pid)() for pid in (server.pid, *map(int, children)))


def _run(program: str, server: Running, file: Path) -> tuple[float, float, float]:
    """Return requests per second, CPU microseconds of each, and the 99th percentile of their times."""
    before = _cpu(server)
    found = wrk.run(program, server, file, connections=CONNECTIONS, seconds=SECONDS)
    return found.rate, (_cpu(server) - before) / found.requests * 1e6, found.p99


def main() -> None:
    """Print the table."""
    program = tool("wrk", "wrk")
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as name, Peers(Path(name)) as peers:
        others = peers.found([TRITON], missing)
        for server in others:
            load.check(server)
        sys.stderr.writelines(f"left out: {reason}\n" for reason in missing)
        print("| tensor | server | requests/s | CPU us each | p99 ms |\n| --- | --- | --- | --- | --- |", flush=True)
        for size, nbytes in SIZES.items():
            file = wrk.write(Path(name), [requests.floats(nbytes)])
            found: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
            for _ in range(ROUNDS):
                for count in COUNTS:
                    with peers.fresh_ours("--workers", str(count)) as ours:
                        found[f"{count} worker{'s' * (count > 1)}"].append(_run(program, ours, file))
                for server in others:
                    found[f"{server.name} {server.version}"].append(_run(program, server, file))
            for server_name, runs in found.items():
                rate, cpu, p99 = (statistics.median(values) for values in zip(*runs, strict=True))
                print(f"| {size} | {server_name} | {rate:,.0f} | {cpu:.0f} | {p99 * 1e3:.1f} |", flush=True)


if __name__ == "__main__":
    main()
