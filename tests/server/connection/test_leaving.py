"""Leaving: a client that goes while its request waits for memory gives its place in the queue to others."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from streamcodec.server import Server, ServerOptions
from streamcodec.server.connection.socketchannel import has_left
from streamcodec.service import InferenceRequest, Model, demo_models
from streamcodec.service.models.model import Outputs
from tests.server.programs import server_here
from tests.server.wire import Wire, chunked, floats, infer_request
from tests.waiting import until

SLOW = 60
BYTES = 100_000
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])


@contextmanager
def _full(backend: str, waiting: bytes) -> Iterator[tuple[Server, threading.Event, Wire, Wire]]:
    """Serve one request that has nearly all of the memory; another waits for it, and a small one behind that."""
    may_go = threading.Event()

    def predict(request: InferenceRequest) -> Outputs:
        assert may_go.wait(10 * SLOW)
        return dict(request.inputs)

    registry = demo_models()
    registry.add(Model(name="gate", predict=predict))
    registry.add(Model(name="plain", predict=lambda request: dict(request.inputs)))
    options = ServerOptions(max_memory_bytes=BYTES + 2000, budget_timeout=10 * SLOW, min_rate=0)
    with (
        server_here(registry, options, backend=backend) as (server, address),
        Wire(address) as first,
        Wire(address) as goes,
        Wire(address) as small,
    ):
        try:
            first.send(infer_request("gate", count=BYTES // 4))
            until(lambda: server.reserved_bytes >= BYTES)
            goes.send(waiting)
            until(lambda: server.requests_in_progress == 2)
            small.send(infer_request("plain", count=300))
            yield server, may_go, goes, small
        finally:
            may_go.set()


def _reset(wire: Wire) -> None:
    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.sock.close()


WHOLE = infer_request("plain", count=BYTES // 4)
BEGIN, _, BODY = WHOLE.partition(b"\r\n\r\n")
CHUNKED = b"\r\n".join(
    [
        *(line for line in BEGIN.split(b"\r\n") if not line.lower().startswith(b"content-length")),
        b"Transfer-Encoding: chunked",
        b"",
        chunked(BODY, [700, 3000]),
    ]
)
LEAVES: dict[str, tuple[bytes, Callable[[Wire], None]]] = {
    "closes within a tensor": (WHOLE[:-1], lambda wire: wire.sock.close()),
    "closes within a header": (WHOLE[: len(BEGIN) + 100], lambda wire: wire.sock.close()),
    "ends its direction within a tensor": (WHOLE[:-1], lambda wire: wire.sock.shutdown(socket.SHUT_WR)),
    "resets within a tensor": (WHOLE[:-1], _reset),
    "resets behind a whole request": (WHOLE, _reset),
    "resets behind a whole chunked request": (CHUNKED, _reset),
}


@pytest.mark.slow
@BACKENDS
@pytest.mark.parametrize("way", LEAVES)
def test_who_leaves_gives_its_place_to_the_next(backend: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    waiting, leave = LEAVES[way]
    with _full(backend, waiting) as (server, _, goes, small):
        if "header" not in way:
            small.sock.settimeout(0.5)
            with pytest.raises(TimeoutError):
                small.response()
            small.sock.settimeout(SLOW)
        leave(goes)
        assert len(floats(small.response())) == 300
        until(lambda: len(server._listening.peers) == 2)  # noqa: SLF001 - nothing of it is left
        until(lambda: server.reserved_bytes < BYTES + 1000)
    assert not caplog.records


@pytest.mark.slow
@BACKENDS
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (len(WHOLE) - 1, "the connection ended before the whole request had come"),
        (len(BEGIN) + 100, "the connection ended in the middle of the body"),
    ],
    ids=["a tensor, which waits for memory", "the header"],
)
def test_who_ends_its_direction_too_early_is_told(backend: str, sent: int, reason: str) -> None:
    """The soak found this: the end of a direction is answered in the same way whether memory is short or not."""
    with _full(backend, WHOLE[:sent]) as (_, may_go, goes, small):
        goes.sock.shutdown(socket.SHUT_WR)
        refusal = goes.response()
        assert (refusal.status, refusal.error.partition(" (")[0]) == (400, reason)
        assert goes.is_closed()
        assert len(floats(small.response())) == 300
        may_go.set()


@pytest.mark.slow
@BACKENDS
@pytest.mark.parametrize("request_bytes", [WHOLE, CHUNKED], ids=["declared", "chunked"])
def test_who_has_sent_all_and_ended_its_direction_keeps_its_place(backend: str, request_bytes: bytes) -> None:
    with _full(backend, request_bytes) as (_, may_go, goes, small):
        goes.sock.shutdown(socket.SHUT_WR)
        small.sock.settimeout(0.6)
        with pytest.raises(TimeoutError):
            small.response()
        may_go.set()
        assert goes.response().status == 200


def test_a_connection_on_which_nothing_happens_has_not_been_left() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert not has_left(one, 1000)
        other.send(b"x" * 10)
        assert not has_left(one, 1000)
        other.shutdown(socket.SHUT_WR)
        assert (has_left(one, 10), has_left(one, 11), has_left(one, None)) == (False, True, False)
