"""Embedding: the service within other people's servers, against an application that takes whole bodies first.

    python -m tests.benchmarks.embedding [SERVER ...]

Both run under the same server at the same time, each in a process of its own, and are asked by turns: one tensor of
256 MiB, which is counted; and small requests of 16 floats, which are answered as they are. Times are medians.
A third application, which reads the body and drops it, shows what the server takes by itself.
A second table has clients that are not usual; see `tests.benchmarks.embedding_clients`.
"""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from streamcodec import Tensor, encode_request
from tests.benchmarks import embedding_clients
from tests.embedding.servers import SERVERS, Embedding, embedded
from tests.processes import cpu_clock, forget_peak, peak_resident, resident

LARGE_BYTES: Final = 256 << 20
SMALL_COUNT: Final = 400
ROUNDS: Final = 3

_MIB: Final = 1 << 20
_APPS: Final = ("ours", "whole", "dropping")


@dataclass
class Figures:
    """Of one application."""

    seconds: list[float] = field(default_factory=list)
    """For one large request."""
    cpu_seconds: list[float] = field(default_factory=list)
    """Of the server, for the same."""
    mebibytes: list[float] = field(default_factory=list)
    """More than before it, at most."""
    small_per_second: list[float] = field(default_factory=list)
    """Small requests, one after the other."""
    small_cpu: list[float] = field(default_factory=list)
    """Of the server for one of them, in microseconds."""


def request(path: str, x: np.ndarray[tuple[int], np.dtype[np.float32]]) -> list[bytes | memoryview]:
    """Return the parts of a request."""
    message = encode_request([Tensor(name="x", array=x)], parameters={"binary_data_output": True})
    fields = "".join(f"{name}: {value}\r\n" for name, value in message.headers)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n"
    return [head.encode(), *message.buffers]


class Client:
    """One connection, opened again where the server closes it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._sock: socket.socket | None = None

    def ask(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send a request, and read its answer; the first answer of a connection says whether it is kept."""
        sock = self._sock or socket.create_connection(self._address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            sock.sendall(part)
        self._sock = sock
        if not _read_answer(sock):
            self.close()

    def close(self) -> None:
        """Close it."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def _read_answer(sock: socket.socket) -> bool:
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        if not (piece := sock.recv(1 << 16)):
            raise ConnectionError("the server has closed")
        data += piece
    head = data[:end].lower()
    if b" 200 " not in head:
        raise ValueError(data[:300])
    left = int(head.partition(b"content-length:")[2].split(b"\r", 1)[0]) - (len(data) - end - 4)
    while left > 0:
        left -= len(sock.recv(1 << 18))
    return b"connection: close" not in head


def measure_large(embedding: Embedding, parts: list[bytes | memoryview], figures: Figures) -> None:
    """Send one large request."""
    pid = embedding.pids[-1]
    forget_peak(pid)
    before, clock = resident(pid), cpu_clock(pid)
    client = Client(embedding.address)
    began, cpu_began = time.perf_counter(), clock()
    client.ask(parts)
    figures.seconds.append(time.perf_counter() - began)
    figures.cpu_seconds.append(clock() - cpu_began)
    figures.mebibytes.append((peak_resident(pid) - before) / _MIB)
    client.close()


def measure_small(embedding: Embedding, parts: list[bytes | memoryview], figures: Figures) -> None:
    """Send small requests, one after the other."""
    whole = [b"".join(parts)]
    client, clock = Client(embedding.address), cpu_clock(embedding.pids[-1])
    client.ask(whole)
    began, cpu_began = time.perf_counter(), clock()
    for _ in range(SMALL_COUNT):
        client.ask(whole)
    figures.small_per_second.append(SMALL_COUNT / (time.perf_counter() - began))
    figures.small_cpu.append((clock() - cpu_began) / SMALL_COUNT * 1e6)
    client.close()


def measure(server: str) -> dict[str, Figures]:
    """Measure both applications under one server."""
    command, kind = SERVERS[server]
    large = request("/v2/models/sink/infer", np.zeros(LARGE_BYTES // 4, np.float32))
    small = request("/v2/models/identity/infer", np.zeros(16, np.float32))
    figures = {app: Figures() for app in _APPS}
    with tempfile.TemporaryDirectory() as folder:
        for measure_one, parts in ((measure_large, large), (measure_small, small)):
            with ExitStack() as stack:
                running = {
                    app: stack.enter_context(
                        embedded(command, f"tests.embedding.measured:{app}_{kind}", Path(folder, app))
                    )
                    for app in _APPS
                }
                for app in _APPS:
                    measure_small(running[app], small, Figures())  # all is imported by then
                for _ in range(ROUNDS):
                    for app in _APPS:
                        measure_one(running[app], parts, figures[app])
    return figures


def line(server: str, figures: dict[str, Figures]) -> str:
    """Return a line of the table."""
    ours, whole = figures["ours"], figures["whole"]
    cells = [server]
    for name, unit, digits in (
        ("seconds", 1e3, 0),
        ("cpu_seconds", 1e3, 0),
        ("mebibytes", 1, 0),
        ("small_per_second", 1, 0),
        ("small_cpu", 1, 0),
    ):
        # What is used again costs nothing the second time; so of memory it is the first time that counts.
        middle = max if name == "mebibytes" else statistics.median
        mine, theirs = middle(getattr(ours, name)) * unit, middle(getattr(whole, name)) * unit
        cells.append(f"{mine:.{digits}f} / {theirs:.{digits}f} ({mine / theirs:.2f})")
    dropped = [statistics.median(getattr(figures["dropping"], name)) for name in ("seconds", "cpu_seconds")]
    ratios = [
        mine / statistics.median(theirs)
        for mine, theirs in zip(dropped, (whole.seconds, whole.cpu_seconds), strict=True)
    ]
    cells.insert(3, f"{dropped[0] * 1e3:.0f} ({ratios[0]:.2f}), CPU {dropped[1] * 1e3:.0f} ({ratios[1]:.2f})")
    return f"| {' | '.join(cells)} |"


def main(servers: list[str]) -> None:
    """Print the tables."""
    print("| server | 256 MiB: ms | CPU ms | dropped: ms, CPU ms | MiB | small: requests/s | CPU us |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for server in servers or SERVERS:
        with suppress(KeyboardInterrupt):
            print(line(server, measure(server)), flush=True)
    print(f"\n| server | {' | '.join(embedding_clients.HEADINGS)} |")
    print(f"| {' | '.join(['---'] * (1 + len(embedding_clients.HEADINGS)))} |")
    for server in servers or SERVERS:
        with suppress(KeyboardInterrupt):
            print(embedding_clients.line(server), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
