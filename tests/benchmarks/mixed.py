"""Small beside large: `python -m tests.benchmarks.mixed`.

A small request, 4 KiB to `identity` and back, is sent every 2 ms over one connection, while two other clients keep the
same server busy without pause, each a process of its own:

- *64 MiB* there and back;
- *slow readers*: the same, but they read 256 KiB of the answer each 8 ms, into a small buffer;
- *gzip*: 64 MiB in a compressed request, whose answer is not compressed;
- *JSON*: a million floats as JSON there and back.

Large ones are counted by their bytes, sent and received. The machine's cores are shared by the server and all clients.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from multiprocessing.sharedctypes import Synchronized
from statistics import quantiles
from typing import Final

import numpy as np

from streamcodec import EncodedMessage, Tensor, compress_message, encode_request
from tests.benchmarks import alone, load
from tests.benchmarks.beside import report_ratio
from tests.benchmarks.figures import INLINE, MIB, OURS, Figures, Options, Scenario, at_most
from tests.benchmarks.measure import in_turn
from tests.benchmarks.peers import TRITON, Running

_FORK: Final = multiprocessing.get_context("fork")
"""So that clients share the memory of what they send."""
_CLIENTS: Final = 2
_SMALL_BYTES: Final = 4 << 10
_PAUSE: Final = 0.002
_SETTLING: Final = 0.5
"""Seconds until the large ones are under way."""
_PIECE: Final = 256 << 10
_SLOW_SECONDS: Final = 0.008


@dataclass(frozen=True, slots=True)
class Large:
    """What large clients send, and how they read."""

    message: EncodedMessage
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class Mixed:
    """What was seen for some seconds."""

    p50: float
    p99: float
    rate: float
    """Bytes per second of the large ones, both ways."""


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    servers = [options.peers.ours(), *options.peers.found([TRITON], found.missing)]
    found.name(servers)
    seconds = options.choose(4, 2)
    for case, large in _cases():
        ways = {server.name: partial(_measure, server, large, seconds) for server in servers}
        _report(found, case, in_turn(ways, options.choose(3, 2), warm_up=False))
    return found


def _cases() -> Iterator[tuple[str, Large | None]]:
    values = np.random.default_rng(1).integers(0, 256, 64 * MIB // 4).astype(np.float32)
    parameters = {"binary_data_output": True}
    message = encode_request({"x": values}, parameters=parameters)
    yield "alone", None
    yield "beside 64 MiB", Large(message)
    yield "beside slow readers", Large(message, is_slow=True)
    yield "beside gzip", Large(compress_message(message, "gzip"))
    million = np.random.default_rng(1).standard_normal(1_000_000).astype(np.float32)
    yield "beside JSON", Large(encode_request([Tensor(name="x", array=million, is_binary=False)]))


def _measure(server: Running, large: Large | None, seconds: int) -> Mixed:
    moved = _FORK.Value("Q", 0)
    with _busy(server, large, moved):
        time.sleep(_SETTLING)
        before, began = moved.value, time.perf_counter()
        latencies = _latencies(server, seconds)
        rate = (moved.value - before) / (time.perf_counter() - began)
    percentiles = quantiles(latencies, n=100, method="inclusive")
    return Mixed(percentiles[49], percentiles[98], rate)


def _latencies(server: Running, seconds: int) -> list[float]:
    request = load.request_to(server, "identity", load.message_for(_SMALL_BYTES))
    found = []
    with closing(load.Connection(server)) as connection:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found.append(connection.timed(request).wall)
            time.sleep(_PAUSE)
    return found


@contextmanager
def _busy(server: Running, large: Large | None, moved: Synchronized[int]) -> Iterator[None]:
    """Keep a server busy with large requests.

    Raises:
        RuntimeError: a client has failed.
    """
    if large is None:
        yield
        return
    request = load.Request(load.head_of(server, "identity", large.message.headers), [b"".join(large.message.buffers)])
    clients = [
        _FORK.Process(target=_ask_forever, args=(server, request, large.is_slow, moved)) for _ in range(_CLIENTS)
    ]
    for client in clients:
        client.start()
    try:
        yield
        if not all(client.is_alive() for client in clients):
            raise RuntimeError(f"a large client of {server.name} has failed")
    finally:
        for client in clients:
            client.kill()
            client.join()


class _Counting(socket.socket):
    """A socket that counts what it sends and receives, and takes its time to read if it is slow."""

    moved: Synchronized[int]
    is_slow: bool

    def sendall(self, data: bytes) -> None:  # type: ignore[override]  # as `load` calls it
        """Send."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE):
            super().sendall(view[start : start + _PIECE])
            self._count(len(view[start : start + _PIECE]))

    def recv_into(self, buffer: memoryview) -> int:  # type: ignore[override]  # as `load` calls it
        """Receive."""
        if self.is_slow:
            time.sleep(_SLOW_SECONDS)
            buffer = buffer[:_PIECE]
        nbytes = super().recv_into(buffer)
        self._count(nbytes)
        return nbytes

    def _count(self, nbytes: int) -> None:
        with self.moved.get_lock():
            self.moved.value += nbytes


def _ask_forever(server: Running, request: load.Request, is_slow: bool, moved: Synchronized[int]) -> None:
    with _Counting(fileno=load.connect(server).detach()) as sock:
        sock.setblocking(True)
        sock.moved, sock.is_slow = moved, is_slow
        if is_slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE)
        status = HTTPStatus.OK
        while status == HTTPStatus.OK:
            load.send(sock, request)
            status = HTTPStatus(load.receive(sock).status)
    raise RuntimeError(status)


def _report(found: Figures, case: str, taken: Mapping[str, Sequence[Mixed]]) -> None:
    p50s = {name: [seen.p50 for seen in runs] for name, runs in taken.items()}
    report_ratio(found, case, "p50", "s", p50s, bound_of_ours=at_most(6e-4))
    p99s = {name: [seen.p99 for seen in runs] for name, runs in taken.items()}
    report_ratio(found, case, "p99", "s", p99s, bound=at_most(1))
    rates = {name: [seen.rate for seen in runs] for name, runs in taken.items()}
    if any(rates[OURS]):
        report_ratio(found, case, "large, both ways", "B/s", rates)


SCENARIO = Scenario(title="Small beside large", about=__doc__, run=run, served=INLINE, is_wide=True)

if __name__ == "__main__":
    alone.main(SCENARIO)
