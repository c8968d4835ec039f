"""Wrong requests of 256 MiB: how soon the answer comes, and how much was sent by then.

The client sends as fast as the server takes it, as a client does that knows of no mistake, and looks for an answer all
the while. The clock runs from the first byte sent to the first byte of the answer.

How much the server has read is bounded from outside, without its help: by how much the client could get rid of before
the answer came. For this the request is sent again with the smallest send buffer that the system allows, so that little
lies under way; what the system keeps for the server on its side is still counted as read.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from streamcodec import EncodedMessage
from tests.benchmarks import load
from tests.benchmarks.figures import INLINE, MIB, Chart, Figures, Options, Scenario, at_most
from tests.benchmarks.measure import in_turn
from tests.benchmarks.peers import TRITON, Running

_NBYTES: Final = 256 * MIB
_PIECE: Final = 256 << 10
_SMALL_PIECE: Final = 16 << 10
_SMALL_BUFFER: Final = 1
"""Bytes; the system makes of it the least that it allows."""
_TIMEOUT: Final = 60.0
_LEAST_ERROR: Final = 400


@dataclass(frozen=True, slots=True)
class Refusal:
    """How one wrong request ended."""

    seconds: float
    """From its first byte to the first of the answer."""
    sent: int
    """Bytes that the system had taken from the client by then."""


def run(options: Options) -> Figures:
    """Measure."""
    found = Figures()
    servers = [options.peers.ours(), *options.peers.found([TRITON], found.missing)]
    found.name(servers)
    message = load.message_for(_NBYTES)
    for case, (model, start) in _wrong_requests(message).items():
        body = list(message.buffers)[-1]
        rounds = options.choose(15, 3)
        ways = {server.name: partial(_refused, server, model, start, body) for server in servers}
        refusals = in_turn(ways, rounds)
        for name, taken in refusals.items():
            bound = at_most(5e-3) if name != TRITON else None
            found.add(case, "time", name, "s", [refusal.seconds for refusal in taken], bound=bound)
        narrow = in_turn({name: partial(way, is_narrow=True) for name, way in ways.items()}, options.choose(5, 3))
        for name, taken in narrow.items():
            bound = at_most(256 << 10) if name != TRITON else None
            found.add(case, "bytes sent by then", name, "B", [refusal.sent for refusal in taken], bound=bound)
    found.charts.append(Chart(quantity="time", title="A wrong request of 256 MiB, until it is refused"))
    return found


def _wrong_requests(message: EncodedMessage) -> dict[str, tuple[str, tuple[list[tuple[str, str]], bytes]]]:
    """Return, by what is wrong, the model, and the fields and the JSON of the request."""
    right = bytes(next(iter(message.buffers)))
    count, nbytes = _NBYTES // 4, str(_NBYTES).encode()
    texts = {
        "unknown model": right,
        "bad JSON": b"{" + right[:-1],
        "wrong size": right.replace(b'"binary_data_size":' + nbytes, b'"binary_data_size":%d' % (_NBYTES - 4)),
        "wrong datatype for the model": right.replace(b"FP32", b"INT32"),
        "wrong shape for the model": right.replace(b"[%d]" % count, b"[1,%d]" % count),
    }
    return {
        case: ("nobody" if case == "unknown model" else "sink", (_fields(message, text), text))
        for case, text in texts.items()
    }


def _fields(message: EncodedMessage, text: bytes) -> list[tuple[str, str]]:
    """Return the message's fields, but with the lengths of another JSON."""
    lengths = {"Inference-Header-Content-Length": str(len(text)), "Content-Length": str(len(text) + _NBYTES)}
    return [(name, lengths.get(name, value)) for name, value in message.headers]


def _refused(
    server: Running,
    model: str,
    start: tuple[Sequence[tuple[str, str]], bytes],
    body: bytes | memoryview,
    *,
    is_narrow: bool = False,
) -> Refusal:
    """Send a request until it is refused.

    Raises:
        RuntimeError: it is not.
    """
    fields, text = start
    with load.connect(server) as sock:
        if is_narrow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SMALL_BUFFER)
        sock.setblocking(False)
        began = time.perf_counter()
        sent = sock.send(load.head_of(server, model, fields) + text)
        sent += _send_until_answer(sock, memoryview(body), _SMALL_PIECE if is_narrow else _PIECE)
        seconds = time.perf_counter() - began
        sock.setblocking(True)
        status = sock.recv(64).split(b" ")[1]
        if int(status) < _LEAST_ERROR:
            msg = f"{server.name} answers {status.decode()} to what is wrong"
            raise RuntimeError(msg)
    return Refusal(seconds, sent)


def _send_until_answer(sock: socket.socket, body: memoryview, piece: int) -> int:
    """Send until there is something to read; return how much was sent."""
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT)
    sent = 0
    while True:
        events = poll.poll(_TIMEOUT * 1e3)
        if not events:
            msg = f"no answer within {_TIMEOUT} s"
            raise TimeoutError(msg)
        if events[0][1] & ~select.POLLOUT:
            return sent
        if sent == len(body):
            poll.modify(sock, select.POLLIN)
        with suppress(BlockingIOError):
            sent += sock.send(body[sent : sent + piece])


SCENARIO = Scenario(title="Wrong requests", about=__doc__, run=run, served=INLINE)
