"""tritonclient's HTTP client by ours and by the drop-in, on a real Triton and on our server, by one command:

    python -m tests.benchmarks.dropin --seconds 240

Each client is a process that lives as long as the run. Rounds go from client to client (A B C A B C), and a ratio is
the median over the rounds of tritonclient's time by ours in the same round. Threads share our clients; tritonclient's
may not be shared, so each thread has its own. Tasks share a client with either. Large tensors have fewer threads and
tasks, so that at most 128 MiB are on their way. Peaks of memory are those of fresh processes with one call at a time.

Asked for: at least 1.3 in time at every size, at most 0.3 of the memory from 1 MiB on, and at most 0.11 ms of the
processor for a small call.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.benchmarks.client_program import CLIENTS
from tests.benchmarks.figures import MIB
from tests.benchmarks.measure import ratios
from tests.benchmarks.peers import TRITON, Peers, Running

_ROOT: Final = Path(__file__).parents[2]
_KIB: Final = 1 << 10
SIZES: Final = {
    "64 B": 64,
    "4 KiB": 4 * _KIB,
    "64 KiB": 64 * _KIB,
    "256 KiB": 256 * _KIB,
    "1 MiB": MIB,
    "16 MiB": 16 * MIB,
    "64 MiB": 64 * MIB,
}
WAYS: Final = [("sync", 1, "1 thread"), ("sync", 8, "8 threads"), ("async", 1, "1 task"), ("async", 64, "64 tasks")]
_MOST_ON_THE_WAY: Final = 128 * MIB
_OURS: Final = ("streamcodec", "drop-in")
_THEIRS: Final = "tritonclient"
_MEMORY_CALLS: Final = 3

Orders = dict[str, "subprocess.Popen[str]"]
Measured = dict[str, list[dict[str, float]]]
"""What each client has answered, round by round."""


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.dropin", description=__doc__)
    parser.add_argument("--seconds", type=float, default=240, help="of calls, in all (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of each client (default: %(default)s)")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=[*SIZES], metavar="SIZE", help="as '64 KiB'")
    options = parser.parse_args()
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as folder, Peers(Path(folder)) as peers:
        servers = [*peers.found([TRITON], missing), peers.ours()]
        cells = len(servers) * len(options.sizes) * len(WAYS) * len(CLIENTS)
        window = options.seconds / cells / (options.rounds + 1)
        for server in servers:
            print(f"\n{server.name} {server.version}: time of tritonclient by ours, processor's time of a call, ms\n")
            _print_row("", *_OURS, *(f"CPU, {name}" for name in CLIENTS))
            for row in _rows(server, options.sizes, options.rounds, window):
                _print_row(*row)
            print(f"\n{server.name}: peak of memory above the idle process, MiB, one call at a time\n")
            _print_row("", *CLIENTS, *(f"{name} / {_THEIRS}" for name in _OURS))
            for row in _memory_rows(server, options.sizes):
                _print_row(*row)
    print("".join(f"\nnot measured: {reason}" for reason in missing))


def _print_row(first: str, *others: str) -> None:
    print(first.ljust(32), *(cell.rjust(18) for cell in others), flush=True)


def _rows(server: Running, sizes: Iterable[str], rounds: int, window: float) -> Iterable[list[str]]:
    with ExitStack() as stack:
        processes = {name: stack.enter_context(_process(name, server)) for name in CLIENTS}
        for way, width, words in WAYS:
            for size in sizes:
                nbytes = SIZES[size]
                width_here = min(width, _MOST_ON_THE_WAY // nbytes)
                order = {"way": way, "nbytes": nbytes, "width": width_here, "seconds": window}
                measured = _measured(processes, order, rounds)
                wall = {name: [each["wall"] / each["calls"] for each in taken] for name, taken in measured.items()}
                cpu = {name: median(each["cpu"] / each["calls"] for each in taken) for name, taken in measured.items()}
                by = [f"{median(ratios(wall[_THEIRS], wall[name])):.2f}" for name in _OURS]
                words_here = words if width_here == width else f"{width_here} of {words}"
                yield [f"{way}, {words_here}, {size}", *by, *(f"{cpu[name] * 1e3:.3f}" for name in CLIENTS)]
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()


def _process(name: str, server: Running) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.benchmarks.dropin_program", name, f"{server.host}:{server.port}"]
    return subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _measured(processes: Orders, order: dict[str, Any], rounds: int) -> Measured:
    """Give each client the order in turn; the first round is for nothing."""
    taken: Measured = defaultdict(list)
    for number in range(rounds + 1):
        for name, process in processes.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if number:
                taken[name].append(answer)
    return taken


def _memory_rows(server: Running, sizes: Iterable[str]) -> Iterable[list[str]]:
    for size in (size for size in sizes if SIZES[size] >= MIB):
        peaks = {name: _peak(name, server, SIZES[size]) for name in CLIENTS}
        by = [f"{peaks[name] / peaks[_THEIRS]:.2f}" for name in _OURS]
        yield [size, *(f"{peak / MIB:.1f}" for peak in peaks.values()), *by]


def _peak(name: str, server: Running, nbytes: int) -> int:
    arguments = [name, f"http://{server.host}:{server.port}", str(nbytes), str(_MEMORY_CALLS)]
    command = [sys.executable, "-m", "tests.benchmarks.client_program", *arguments]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    peak: int = json.loads(done.stdout)["peak"]
    return peak


if __name__ == "__main__":
    main()
