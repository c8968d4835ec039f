"""What one hostile client costs the honest ones of its batches: `python -m tests.benchmarks.batching.hostile`.

63 connections send one row over and over, to a model that refuses NaN. Beside them, one client does what it should not.
Rounds with it and without it take turns, so what else the machine does meets both. Rows of 600 KB are received in the
block of their batch.
"""

from __future__ import annotations

import argparse
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from tests.benchmarks import wrk
from tests.benchmarks.batching.__main__ import SIZES, request_of, serving
from tests.benchmarks.measure import print_table
from tests.benchmarks.peers import Running, tool

_CONNECTIONS: Final = 63

Hostile = Callable[[Running, bytes, threading.Event], None]


def trickle(server: Running, request: bytes, is_over: threading.Event) -> None:
    """Send nearly all of a row, and its last bytes one by one."""
    while not is_over.is_set():
        with socket.create_connection((server.host, server.port), 10) as sock:
            sock.sendall(request[:-64])
            for byte in request[-64:]:
                is_over.wait(0.05)
                sock.sendall(bytes([byte]))


def leave(server: Running, request: bytes, is_over: threading.Event) -> None:
    """Send a row and leave."""
    while not is_over.wait(0.01):
        with socket.create_connection((server.host, server.port), 10) as sock:
            sock.sendall(request)


def poison(server: Running, request: bytes, is_over: threading.Event) -> None:
    """Send a row that the model refuses."""
    request = request[:-4] + struct.pack("<f", float("nan"))
    with socket.create_connection((server.host, server.port), 10) as sock:
        while not is_over.is_set():
            sock.sendall(request)
            sock.recv(1 << 16)


HOSTILE: Final[dict[str, Hostile]] = {"trickles": trickle, "leaves": leave, "sends NaN": poison}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3, help="of each run (default: 3)")
    parser.add_argument("--rounds", type=int, default=5, help="of each pair (default: 5)")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["4 KiB", "600 KB"])
    options = parser.parse_args()
    program, rows = tool("wrk", "wrk"), []
    with tempfile.TemporaryDirectory() as work:
        for size in options.sizes:
            with serving("streamcodec, refusing", SIZES[size]) as server:
                request = request_of(server.name, server, SIZES[size])
                requests = wrk.write(Path(work), [request])
                send = partial(wrk.run, program, server, requests, connections=_CONNECTIONS, seconds=options.seconds)
                for name, act in HOSTILE.items():
                    pairs = []
                    for _ in range(options.rounds):
                        alone = send()
                        with _doing(act, server, request):
                            pairs.append((alone, send()))
                    ratios = sorted(beside.p99 / alone.p99 for alone, beside in pairs)
                    cells = [f"{median(pair[index].p99 for pair in pairs) * 1e3:.1f} ms" for index in (0, 1)]
                    rows.append([size, name, *cells, " ".join(f"{ratio:.2f}" for ratio in ratios)])
    print_table(["row", "one", "p99 without", "p99 with", "with / without"], rows)


@contextmanager
def _doing(act: Hostile, server: Running, request: bytes) -> Iterator[None]:
    is_over = threading.Event()

    def run() -> None:
        with suppress(OSError):
            act(server, request, is_over)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.2)
    try:
        yield
    finally:
        is_over.set()
        thread.join()


if __name__ == "__main__":
    main()
