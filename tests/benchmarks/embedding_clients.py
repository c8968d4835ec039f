"""Clients that are not usual, of the service within other people's servers, against an application of whole bodies.

The clients are: one whose request is refused, one that stops in the middle of its request, one that does not read its
answer, one that reads its answer while it sends its request, and one that leaves. `tests.benchmarks.embedding` prints
these figures as its second table.
"""

from __future__ import annotations

import json
import math
import select
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from streamcodec import Tensor, encode_request
from tests.embedding.servers import SERVERS, Embedding, embedded
from tests.processes import forget_peak, peak_resident, resident

HEADINGS: Final = (
    "refusal: ms",
    "MiB sent by then",
    "4 slow senders: MiB",
    "slow reader: MiB",
    "both ways: first MiB of the answer, % of the request",
    "MiB",
    "gone: ms",
)

_MIB: Final = 1 << 20
_LARGE_BYTES: Final = 256 * _MIB
_SLOW_BYTES: Final = 64 * _MIB
_SLOW_COUNT: Final = 4
_ROUNDS: Final = 3
_SECONDS: Final = 30.0
_QUIET_SECONDS: Final = 0.7
"""Without a byte or a page more, nothing more will come."""

_REST_SECONDS: Final = 0.2
"""Within this time a server gives memory back of requests that are over."""

_APPS: Final = ("ours", "whole")

Parts = Sequence[bytes | memoryview]

_T = TypeVar("_T")


def request(model: str, nbytes: int) -> list[bytes | memoryview]:
    """Return the parts of a request."""
    x = np.zeros(nbytes // 4, np.float32)
    message = encode_request([Tensor(name="x", array=x)], parameters={"binary_data_output": True})
    fields = "".join(f"{name}: {value}\r\n" for name, value in message.headers)
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\n{fields}\r\n"
    return [head.encode(), *message.buffers]


def refusal(embedding: Embedding) -> tuple[float, float]:
    """Return after how many milliseconds a refusal comes, and how many MiB have been sent by then."""
    with socket.create_connection(embedding.address, _SECONDS) as sock:
        began = time.perf_counter()
        sent = _send_until(sock, request("unknown", _LARGE_BYTES), _LARGE_BYTES * 2, _SECONDS, stops_for_answer=True)
        select.select([sock], [], [], _SECONDS)
        seconds = time.perf_counter() - began
        with suppress(ConnectionError):  # the rest of the request may have met a closed connection
            assert b" 404 " in sock.recv(1000)
    return seconds * 1e3, sent / _MIB


def slow_senders(embedding: Embedding) -> float:
    """Return how many MiB some clients take that stop in the middle of their requests."""
    before = _begin(embedding)
    socks = [socket.create_connection(embedding.address, _SECONDS) for _ in range(_SLOW_COUNT)]
    parts = request("sink", _SLOW_BYTES)
    for sock in socks:
        _send_until(sock, parts, _SLOW_BYTES // 2, _QUIET_SECONDS)
    return _end(embedding, before, socks)


def slow_reader(embedding: Embedding) -> float:
    """Return how many MiB a client takes that does not read its answer."""
    before = _begin(embedding)
    sock = socket.create_connection(embedding.address, _SECONDS)
    sock.sendall(b"".join(request("large", 64)))
    sock.recv(1000)
    return _end(embedding, before, [sock])


def both_ways(embedding: Embedding) -> tuple[float, float]:
    """Return when the first MiB of an answer has come, in percent of the time of its request; and the MiB it takes."""
    before = _begin(embedding)
    with socket.create_connection(embedding.address, _SECONDS) as sock:
        began = time.perf_counter()
        ended = []

        def send() -> None:
            for part in request("echo", _LARGE_BYTES):
                sock.sendall(part)
            ended.append(time.perf_counter() - began)

        sender = threading.Thread(target=send)
        sender.start()
        received, first = 0, 0.0
        while received < _LARGE_BYTES:
            received += len(piece := sock.recv(_MIB))
            assert piece, "the answer has broken off"
            first = first or (received >= _MIB and time.perf_counter() - began)
        sender.join()
    return first / ended[0] * 100, (peak_resident(embedding.pids[-1]) - before) / _MIB


def gone(embedding: Embedding) -> float:
    """Return after how many milliseconds nothing is in use any more of a client that has left in mid-request."""
    sock = socket.create_connection(embedding.address, _SECONDS)
    _send_until(sock, request("sink", _LARGE_BYTES), _LARGE_BYTES // 2, _SECONDS)
    began = time.perf_counter()
    _leave(sock)
    _wait_for_rest(embedding)
    return (time.perf_counter() - began) * 1e3


def measure(server: str) -> list[list[str]]:
    """Return the cells of a server, each with the figure of the service and that of the other application."""
    command, kind = SERVERS[server]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running = {
            app: stack.enter_context(
                embedded(command, f"tests.embedding.measured:told_{app}_{kind}", Path(folder, app))
            )
            for app in _APPS
        }
        found = {app: _figures(running[app]) for app in _APPS}
    return [[found[app][number] for app in _APPS] for number in range(len(HEADINGS))]


def line(server: str) -> str:
    """Return a line of the table."""
    return f"| {server} | {' | '.join(' / '.join(cell) for cell in measure(server))} |"


def _figures(embedding: Embedding) -> list[str]:
    senders = _rested(embedding, slow_senders)  # at first: some servers keep memory for later, which would not show
    refusals = [_rested(embedding, refusal) for _ in range(_ROUNDS)]
    reader = _rested(embedding, slow_reader)
    first, memory = _rested(embedding, both_ways)
    departures = [_rested(embedding, gone) for _ in range(_ROUNDS)]
    numbers = [statistics.median(column) for column in zip(*refusals, strict=True)]
    return [f"{number:.0f}" for number in (*numbers, senders, reader, first, memory, statistics.median(departures))]


def _rested(embedding: Embedding, measured: Callable[[Embedding], _T]) -> _T:
    """Measure when nothing is left of what was measured before."""
    _wait_for_rest(embedding)
    return measured(embedding)


def _begin(embedding: Embedding) -> int:
    """Return the memory that the server has when it gives back no more of it."""
    pid, least = embedding.pids[-1], math.inf
    while (now := resident(pid)) < least:
        least = now
        time.sleep(_REST_SECONDS)
    forget_peak(pid)
    return resident(pid)


def _end(embedding: Embedding, before: int, socks: Sequence[socket.socket]) -> float:
    """Wait until the peak grows no more; return it in MiB, and have the clients leave."""
    pid, peak = embedding.pids[-1], -1
    while (now := peak_resident(pid)) > peak:
        peak = now
        time.sleep(_QUIET_SECONDS)
    for sock in socks:
        _leave(sock)
    return (peak - before) / _MIB


def _leave(sock: socket.socket) -> None:
    """Close with a reset, as a program that has crashed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def _send_until(
    sock: socket.socket, parts: Parts, nbytes: int, timeout: float, *, stops_for_answer: bool = False
) -> int:
    """Send so much of a request, as far as the server takes it; return how many bytes that were."""
    sock.setblocking(False)
    sent = 0
    for part in parts:
        view = memoryview(part).cast("B")
        while view and sent < nbytes:
            readable, writable, _ = select.select([sock] if stops_for_answer else [], [sock], [], timeout)
            if readable or not writable:
                return sent
            try:
                count = sock.send(view[: min(_MIB, nbytes - sent)])
            except ConnectionError:
                return sent
            view, sent = view[count:], sent + count
    return sent


def _wait_for_rest(embedding: Embedding) -> None:
    """Wait until no request is being answered and no memory is in use."""
    end = time.monotonic() + _SECONDS
    while (state := _state(embedding)) != [0, 0]:
        if time.monotonic() > end:
            raise TimeoutError(f"still in use: {state}")
        time.sleep(0.001)


def _state(embedding: Embedding) -> list[int]:
    with socket.create_connection(embedding.address, _SECONDS) as sock:
        sock.sendall(b"GET /~/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := sock.recv(1 << 16):
            answer += piece
    state: list[int] = json.loads(answer[answer.rindex(b"[") : answer.rindex(b"]") + 1])
    return state
