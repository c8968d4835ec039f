"""TLS: the server with a certificate, next to itself without one, and next to a whole-body application under uvicorn.

    python -m tests.benchmarks.tls

All run at the same time, each in a process of its own, and are asked by turns over one connection each: 64 MiB that are
counted, 64 MiB that are answered as they are, and 16 floats. The client is the same for all; it encrypts as much as
the server does, on the other processor. Times are medians; CPU is the server's.
"""

from __future__ import annotations

import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import trustme

from tests.benchmarks.embedding import request
from tests.ports import free_port
from tests.processes import announced, cpu_clock, forget_peak, peak_resident, resident

LARGE_BYTES: Final = 64 << 20
SMALL_COUNT: Final = 300
ROUNDS: Final = 7

_ROOT: Final = Path(__file__).parents[2]
_OURS: Final = "streamcodec serve tests.benchmarks.models:models --port {port} --no-access-log"
_WHOLE: Final = (
    "uvicorn tests.embedding.measured:whole_asgi --port {port} --log-level critical --http httptools --loop uvloop"
    " --timeout-keep-alive 600"
)
_TLS: Final = " --ssl-certfile {folder}/both --ssl-keyfile {folder}/both"
SERVERS: Final = {
    "streamcodec": _OURS,
    "streamcodec, TLS": _OURS + _TLS,
    "whole body, uvicorn": _WHOLE,
    "whole body, uvicorn, TLS": _WHOLE + _TLS,
}


@dataclass
class Connection:
    """One connection to a server, and what has been measured over it."""

    sock: socket.socket
    pid: int
    scratch: bytearray
    found: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    """For each case: seconds, CPU seconds of the server, and bytes of memory more than before."""

    def ask(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send a request, and read its answer."""
        for part in parts:
            self.sock.sendall(part)
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += _some(self.sock)
        if b" 200 " not in data[:end]:
            raise ValueError(data[:300])
        left = int(data[:end].lower().partition(b"\r\ncontent-length:")[2].split(b"\r", 1)[0]) - (len(data) - end - 4)
        while left > 0:
            left -= self.sock.recv_into(self.scratch)

    def measure(self, case: str, parts: Sequence[bytes | memoryview], count: int) -> None:
        """Ask so many times, and note the means."""
        forget_peak(self.pid)
        before, clock = resident(self.pid), cpu_clock(self.pid)
        began, cpu_began = time.perf_counter(), clock()
        for _ in range(count):
            self.ask(parts)
        seconds, cpu = (time.perf_counter() - began) / count, (clock() - cpu_began) / count
        self.found.setdefault(case, []).append((seconds, cpu, peak_resident(self.pid) - before))


def _some(sock: socket.socket) -> bytes:
    if not (piece := sock.recv(1 << 16)):
        raise ConnectionError("the server has closed")
    return piece


@contextmanager
def _connected(command: str, folder: Path, authority: trustme.CA) -> Iterator[Connection]:
    """Run a server, and connect to it."""
    port = free_port()
    words = [sys.executable, "-m", *command.format(port=port, folder=folder).split()]
    with subprocess.Popen(words, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            if "serve" in words:
                announced(process.stdout or ())
            sock = _connect(port)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if "--ssl-certfile" in words:
                context = ssl.create_default_context()
                authority.configure_trust(context)
                sock = context.wrap_socket(sock, server_hostname="localhost")
            yield Connection(sock, process.pid, bytearray(1 << 18))
            sock.close()
        finally:
            process.kill()


def _connect(port: int) -> socket.socket:
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise ConnectionError("the server does not start")


def measure() -> dict[str, Connection]:
    """Measure all servers by turns."""
    large, few = np.full(LARGE_BYTES // 4, 1.5, np.float32), np.zeros(16, np.float32)
    sink, same = "/v2/models/sink/infer", "/v2/models/identity/infer"
    cases: dict[str, tuple[Sequence[bytes | memoryview], int]] = {
        "64 MiB, counted": (request(sink, large), 1),
        "64 MiB, both ways": (request(same, large), 1),
        "16 floats": ([b"".join(request(same, few))], SMALL_COUNT),
    }
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "both").write_bytes(authority.issue_cert("localhost").private_key_and_cert_chain_pem.bytes())
        running = {
            server: stack.enter_context(_connected(command, folder, authority)) for server, command in SERVERS.items()
        }
        for case, (parts, count) in cases.items():
            for connection in running.values():
                connection.ask(parts)  # all is imported by then, and memory is warm
            for _ in range(ROUNDS):
                for connection in running.values():
                    connection.measure(case, parts, count)
    return running


def main() -> None:
    """Print the table."""
    for server, connection in measure().items():
        cells = [server]
        for case, found in connection.found.items():
            seconds, cpu, _ = (statistics.median(values) for values in zip(*found, strict=True))
            nbytes = max(memory for _, _, memory in found)
            unit, name = (1e6, "us") if seconds < 1e-2 and "MiB" not in case else (1e3, "ms")
            cells.append(f"{seconds * unit:.0f} {name}, CPU {cpu * unit:.0f}, +{nbytes / (1 << 20):.0f} MiB")
        if server == next(iter(SERVERS)):
            print(f"| server | {' | '.join(connection.found)} |\n| --- |{' --- |' * len(connection.found)}")
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
