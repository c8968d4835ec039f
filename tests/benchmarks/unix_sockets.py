"""Unix sockets: the server at the path of a file, next to itself at a port of the loopback interface.

    python -m tests.benchmarks.unix_sockets

Both run at the same time, each in a process of its own, and are asked by turns over one connection each, by the same
client: tensors of three sizes that are answered as they are, and the largest one counted. Times are medians of the
rounds; CPU is the server's. The ratio is the median of the ratios of each round: above 1, the Unix socket is faster.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from streamcodec.client.connections.address import Address
from tests.benchmarks.embedding import request
from tests.benchmarks.tls import Connection
from tests.processes import announced

_ROOT: Final = Path(__file__).parents[2]
_COMMAND: Final = "-m streamcodec serve tests.benchmarks.models:models --no-access-log"
CASES: Final = {
    "64 B, both ways": ("identity", 64, 500, 21),
    "64 KiB, both ways": ("identity", 64 << 10, 100, 21),
    "64 MiB, both ways": ("identity", 64 << 20, 1, 15),
    "64 MiB, counted": ("sink", 64 << 20, 1, 15),
}
"""For each case: the model, the bytes of its tensor, how many requests are a round, and how many rounds."""


@contextmanager
def _connected(*place: str) -> Iterator[Connection]:
    """Run a server, and connect to it."""
    command = [sys.executable, *_COMMAND.split(), *place]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = Address.of(announced(process.stdout or ()))
            with _connect(address) as sock:
                yield Connection(sock, process.pid, bytearray(1 << 18))
        finally:
            process.kill()


def _connect(address: Address) -> socket.socket:
    if address.socket_path is None:
        sock = socket.create_connection((address.host, address.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(address.socket_path)
    return sock


def main() -> None:
    """Measure, and print the table."""
    print("| tensor | TCP | Unix socket | time, TCP / Unix | CPU, TCP / Unix |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tcp = stack.enter_context(_connected("--port", "0"))
        unix = stack.enter_context(_connected("--uds", f"{folder}/s"))
        for case, (model, nbytes, count, rounds) in CASES.items():
            parts = request(f"/v2/models/{model}/infer", np.full(nbytes // 4, 1.5, np.float32))
            if nbytes < 1 << 20:
                parts = [b"".join(parts)]
            for number in range(rounds + 1):
                for connection in (tcp, unix) if number % 2 else (unix, tcp):
                    connection.measure(case, parts, count)
            print(_row(case, tcp.found[case][1:], unix.found[case][1:]), flush=True)  # the first one warmed up


def _row(case: str, tcp: list[tuple[float, float, float]], unix: list[tuple[float, float, float]]) -> str:
    unit, name = (1e3, "ms") if "MiB" in case else (1e6, "us")
    cells = [case]
    for found in (tcp, unix):
        seconds, cpu = (statistics.median(round_[index] for round_ in found) for index in (0, 1))
        cells.append(f"{seconds * unit:.1f} {name}, CPU {cpu * unit:.1f}")
    for index in (0, 1):
        ratio = statistics.median(a[index] / b[index] for a, b in zip(tcp, unix, strict=True))
        cells.append(f"{ratio:.2f}")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
