"""The guard: our server behind it, next to the same server without it.

    python -m tests.benchmarks.guard [URL]

Both are asked by turns over one connection each, by the same client. The server, or the one at URL, has the demo models
`identity` and `sink`. Times are medians of the rounds. The ratio is the median of the ratios of each round: 0.5 means
that the guard halves the throughput. CPU and the largest memory are the guard's.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from streamcodec.client.address import Address
from tests.benchmarks.embedding import request
from tests.benchmarks.tls import Connection
from tests.processes import announced

_ROOT: Final = Path(__file__).parents[2]
CASES: Final = {
    "16 floats": ("identity", 64, 200, 21),
    "64 KiB": ("identity", 64 << 10, 50, 21),
    "64 MiB, both ways": ("identity", 64 << 20, 1, 9),
    "64 MiB, counted": ("sink", 64 << 20, 1, 9),
}
"""For each case: the model, the bytes of its tensor, how many requests are a round, and how many rounds."""


@contextmanager
def _running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a command that says where it listens."""
    command = [sys.executable, "-m", "streamcodec", *arguments, "--port", "0"]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, announced(process.stdout or ())
        finally:
            process.kill()


@contextmanager
def _connected(url: str, pid: int) -> Iterator[Connection]:
    address = Address.of(url)
    with socket.create_connection((address.host, address.port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Connection(sock, pid, bytearray(1 << 18))


def main() -> None:
    """Measure, and print the table."""
    print("| tensor | without | with the guard | ratio | guard's CPU |\n| --- | --- | --- | --- | --- |")
    with ExitStack() as stack:
        process, url = stack.enter_context(_running("serve", "tests.benchmarks.models:models", "--no-access-log"))
        url = sys.argv[1] if sys.argv[1:] else url
        guard, guarded_url = stack.enter_context(_running("guard", "--upstream", url, "--no-access-log"))
        direct = stack.enter_context(_connected(url, process.pid))
        guarded = stack.enter_context(_connected(guarded_url, guard.pid))
        for case, (model, nbytes, count, rounds) in CASES.items():
            parts = request(f"/v2/models/{model}/infer", np.full(nbytes // 4, 1.5, np.float32))
            if nbytes < 1 << 20:
                parts = [b"".join(parts)]
            for number in range(rounds + 1):
                for connection in (direct, guarded) if number % 2 else (guarded, direct):
                    connection.measure(case, parts, count)
            print(_row(case, direct.found[case][1:], guarded.found[case][1:]), flush=True)  # the first one warmed up
        grown = max(found[2] for each in guarded.found.values() for found in each)
        print(f"\nThe guard's memory grew by {grown / 2**20:.1f} MiB at most during a round.")


def _row(case: str, direct: list[tuple[float, float, float]], guarded: list[tuple[float, float, float]]) -> str:
    unit, name = (1e3, "ms") if "MiB" in case else (1e6, "us")
    times = [statistics.median(found[0] for found in each) * unit for each in (direct, guarded)]
    ratio = statistics.median(one[0] / other[0] for one, other in zip(direct, guarded, strict=True))
    cpu = statistics.median(found[1] for found in guarded) * unit
    return f"| {case} | {times[0]:.3g} {name} | {times[1]:.3g} {name} | {ratio:.2f} | {cpu:.3g} {name} |"


if __name__ == "__main__":
    main()
