"""Floods: connections by the hundred and requests by the thousand, of clients that do not read. Memory stays bounded.

Each runs against a server process of its own, whose memory the system tells. Others are served meanwhile.
"""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from streamcodec.http.scratch import SCRATCH_BYTES
from tests.processes import forget_peak, peak_resident, resident
from tests.server.programs import MODELS, Program, serving
from tests.server.wire import GET_LIVE, TIMEOUT, Wire, chunked, floats, head, infer_request, post
from tests.waiting import until

pytestmark = pytest.mark.slow

MIB = 1 << 20
CONNECTIONS = 400
QUIET_SECONDS = 0.5
METADATA = head("/v2/models/declared", method="GET")


@pytest.fixture(scope="module")
def flooded() -> Iterator[Program]:
    """A server process that must end well, without complaints."""
    with serving(MODELS) as program:
        with Wire(program.address) as wire:  # so that what every first request needs is in memory already
            for request in (GET_LIVE, METADATA, infer_request(), infer_request("sleep", count=1), post(b"x")):
                wire.send(request).response()
        yield program
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
        assert "connection failed" not in program.complaints()


def _begin(program: Program) -> int:
    """Begin a new measurement; return how many bytes of memory the server uses now."""
    forget_peak(program.process.pid)
    return resident(program.process.pid)


def _assert_serves(program: Program) -> None:
    with Wire(program.address) as wire:
        assert wire.send(GET_LIVE).response().status == 200
        assert floats(wire.send(infer_request()).response()) == [0, 1, 2, 3]


BEGINNINGS = {
    "nothing": b"",
    "half a head": GET_LIVE[:-4],
    "a head, and no body": head("/v2/models/identity/infer", "Content-Length: 1000000"),
    "half a chunk": head("/v2/models/identity/infer", "Transfer-Encoding: chunked") + b"fff",
    "a declared gigabyte": head("/v2/models/identity/infer", f"Content-Length: {1 << 30}") + b" " * 1000,
}


@pytest.mark.parametrize("name", BEGINNINGS)
def test_many_connections_at_once_cost_one_scratch_memory_each(flooded: Program, name: str) -> None:
    beginning = BEGINNINGS[name]
    scratches = 2 if name == "half a chunk" else 1  # the second for a JSON header whose length nobody has told
    with Wire(flooded.address) as early, ExitStack() as stack:
        assert early.send(GET_LIVE).response().status == 200
        before = _begin(flooded)
        for _ in range(CONNECTIONS):
            stack.enter_context(Wire(flooded.address)).send(beginning)
        assert early.send(GET_LIVE).response().status == 200
        _assert_serves(flooded)
        assert (
            peak_resident(flooded.process.pid) - before
            < CONNECTIONS * (scratches * SCRATCH_BYTES + (48 << 10)) + 8 * MIB
        )
    _assert_serves(flooded)


def test_connections_that_come_and_go_leave_nothing(flooded: Program) -> None:
    def files() -> int:
        return len(list(Path(f"/proc/{flooded.process.pid}/fd").iterdir()))

    def come_and_go(count: int) -> None:
        for number in range(count):
            with Wire(flooded.address) as wire, suppress(ConnectionError):
                wire.send(list(BEGINNINGS.values())[number % len(BEGINNINGS)])
        _assert_serves(flooded)

    idle = files()
    come_and_go(300)
    until(lambda: files() <= idle + 5)  # each is noticed when it is its turn
    before = _begin(flooded)
    come_and_go(1000)
    assert peak_resident(flooded.process.pid) - before < 8 * MIB
    until(lambda: files() <= idle + 5)


DOCUMENT = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}'
PIPELINED = {
    "health checks": GET_LIVE,
    "metadata": METADATA,
    "metadata a thousand times as long as what asks for it": head("/v2/models/wide", method="GET"),
    "inferences": infer_request(),
    "inferences with other heads": infer_request("identity", "Accept-Encoding: identity"),
    "inferences of models in threads": infer_request("sleep", count=1),
    "refusals": post(b"x"),
    "chunked": head("/v2/models/identity/infer", "Transfer-Encoding: chunked") + chunked(DOCUMENT, [2]),
    "unknown models": head("/v2/models/nobody", method="GET"),
}


def _send_until_full(sock: socket.socket, request: bytes) -> int:
    """Send requests until the server takes no more of them; return how many it has got, the last perhaps in part."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)  # else the system takes megabytes of answers
    sock.settimeout(QUIET_SECONDS)
    block = request * max(1, (64 << 10) // len(request))
    sent = 0
    with suppress(TimeoutError):
        while sent < 64 * MIB:
            sent += sock.send(block[sent % len(request) :])
    sock.settimeout(TIMEOUT)
    return sent


@pytest.mark.parametrize("request_", PIPELINED.values(), ids=PIPELINED)
def test_a_client_that_asks_and_asks_and_does_not_listen_is_made_to_wait(flooded: Program, request_: bytes) -> None:
    with Wire(flooded.address) as flood, Wire(flooded.address) as good:
        good.send(GET_LIVE).response()
        before = _begin(flooded)
        sent = _send_until_full(flood.sock, request_)
        assert sent < 64 * MIB
        assert good.send(GET_LIVE).response().status == 200
        _assert_serves(flooded)
        assert peak_resident(flooded.process.pid) - before < 8 * MIB
        answers = [flood.response().status for _ in range(min(sent // len(request_), 300))]
        assert len(set(answers)) == 1
    _assert_serves(flooded)


def test_thousands_of_pipelined_requests_are_answered_in_their_order(flooded: Program) -> None:
    counts = [1 + number % 7 for number in range(3000)]
    data = b"".join(infer_request(count=count) for count in counts)
    with Wire(flooded.address) as wire:
        wire.sock.setblocking(False)
        position, heard = 0, b""
        wire.sock.settimeout(TIMEOUT)
        while position < len(data):
            position += wire.sock.send(data[position : position + (16 << 10)])
            wire.sock.settimeout(0.0)
            with suppress(BlockingIOError):
                heard += wire.sock.recv(1 << 20)
            wire.sock.settimeout(TIMEOUT)
        wire.sock.shutdown(socket.SHUT_WR)
        while chunk := wire.sock.recv(1 << 20):
            heard += chunk
    shapes = [int(shape) for shape in re.findall(rb'"shape":\[([0-9]+)\]', heard)]
    assert shapes == counts
