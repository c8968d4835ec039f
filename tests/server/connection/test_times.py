"""Times: how long a server waits for a client or a model, in each phase; a byte every so often does not help."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from streamcodec import Tensor, Windows, encode_request
from streamcodec.server import Server, ServerOptions, open_listener
from streamcodec.service import Batch, InferenceRequest, Model, ModelRegistry
from streamcodec.service.models.model import Outputs
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, TIMEOUT, Answer, Wire, head, infer_request
from tests.waiting import until

pytestmark = pytest.mark.slow

Address = tuple[str, int]
LONG = 60.0
"""Seconds of a limit that is not to be the one that is hit."""


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Over sockets


def _registry() -> ModelRegistry:
    """Return the test models, and one that takes anything, in a thread."""
    registry = models()
    registry.add(Model(name="plain", predict=lambda request: dict(request.inputs)))
    return registry


REQUEST = infer_request("plain", count=4000)
HEAD_BYTES = REQUEST.index(b"\r\n\r\n") + 4
TENSOR = REQUEST.index(b"]", HEAD_BYTES) + 200

PATIENT = {
    "idle_timeout": LONG,
    "head_timeout": LONG,
    "header_timeout": LONG,
    "read_timeout": LONG,
    "min_rate": 0.0,
    "request_timeout": LONG,
}


def _patient(**changes: float) -> ServerOptions:
    options: dict[str, Any] = PATIENT | changes
    return ServerOptions(**options)


def _drip(wire: Wire, data: bytes) -> Answer:
    """Send a byte every so often until there is an answer."""
    for byte in data:
        wire.send(bytes([byte]))
        if select.select([wire.sock], [], [], 0.02)[0]:
            return wire.response()
    pytest.fail("the server took all of it")


SLOW = {
    "head": ({"head_timeout": 0.4}, 10, "the head of the request comes too slowly"),
    "JSON header": ({"header_timeout": 0.4}, HEAD_BYTES + 10, "the JSON header of the request comes too slowly"),
    "tensor": ({"read_timeout": 0.4, "min_rate": 10_000.0}, TENSOR, "the body of the request comes too slowly"),
    "head, whole request": ({"request_timeout": 0.4}, 10, "the head of the request comes too slowly"),
    "tensor, whole request": ({"request_timeout": 0.4}, TENSOR, "the body of the request comes too slowly"),
}


@pytest.mark.parametrize("part", SLOW)
def test_a_byte_every_so_often_ends_in_408(backend: str, part: str) -> None:
    changes, start, error = SLOW[part]
    options = _patient(**changes)
    rest = b"x" * 1000 if "head" in part else REQUEST[start:]  # a head without end
    begin = head("/v2", "Host: y")[:start] if part.startswith("head") else REQUEST[:start]
    with server_here(_registry(), options, backend=backend) as (server, address), Wire(address) as wire:
        answer = _drip(wire.send(begin), rest)
        assert (answer.status, answer.is_last, answer.error) == (408, True, error)
        until(lambda: server.reserved_bytes == 0)


@pytest.mark.parametrize("part", SLOW)
def test_what_is_as_slow_is_served_where_there_is_time(backend: str, part: str) -> None:
    changes, start, _ = SLOW[part]
    changes = {"min_rate": 1.0} if "min_rate" in changes else dict.fromkeys(changes, LONG)
    with (
        server_here(_registry(), _patient(**changes), backend=backend) as (_, address),
        Wire(address) as wire,
    ):
        wire.send(REQUEST[:start])
        for byte in REQUEST[start : start + 25]:
            wire.send(bytes([byte]))
            time.sleep(0.02)
        assert wire.send(REQUEST[start + 25 :]).response().status == 200


def _row(model: str, count: int) -> bytes:
    """Return a request with a row of floats."""
    message = encode_request({"x": np.zeros((1, count), np.float32)}, parameters={"binary_data_output": True})
    fields = [f"{name}: {value}" for name, value in message.headers]
    return b"".join((head(f"/v2/models/{model}/infer", *fields), *message.buffers))


@pytest.mark.parametrize("batch", [None, Batch(max_rows=4, max_delay=0.01)], ids=["thread", "batch"])
def test_a_request_behind_a_large_one_is_read_by_its_first_byte(backend: str, batch: Batch | None) -> None:
    """The system wakes the event loop for a piece of the large one. Else the next one waits for a look at the time."""
    registry = ModelRegistry.of([Model(name="m", predict=lambda request: dict(request.inputs), batch=batch)])
    options = ServerOptions(idle_timeout=900, head_timeout=900, header_timeout=900, read_timeout=900, min_rate=0.0)
    small, large = (_row("m", count) for count in (4, 50_000))
    with server_here(registry, options, backend=backend) as (_, address), Wire(address) as wire:
        for _ in range(3):
            wire.send(large[:-50_000])
            time.sleep(0.05)  # so that the last piece is waited for
            assert len(wire.send(large[-50_000:]).response().body) > 200_000
            time.sleep(0.05)  # so that nobody works on the connection any more
            assert wire.send(small).response().status == 200


def test_windows_come_at_a_minimum_rate_too(backend: str) -> None:
    def count(request: InferenceRequest) -> Outputs:
        return {"y": np.array([sum(len(window) for window in request.rows["x"].windows)])}

    registry = _registry()
    registry.add(Model(name="windows", predict=count, windows=Windows(max_window_bytes=64)))
    request = infer_request("windows", count=4000)
    options = _patient(read_timeout=0.4, min_rate=10_000.0)
    with server_here(registry, options, backend=backend) as (_, address), Wire(address) as wire:
        assert _drip(wire.send(request[:-10_000]), request[-10_000:]).status == 408


def test_windows_that_come_one_by_one_come_at_a_minimum_rate(backend: str) -> None:
    def count(request: InferenceRequest) -> Outputs:
        return {"y": np.array([sum(1 for rows in request.rows.values() for _ in rows.windows)])}

    registry = _registry()
    registry.add(Model(name="windows", predict=count, windows=Windows()))
    message = encode_request([Tensor(name=f"x{number}", array=np.zeros(1, np.uint8)) for number in range(100)])
    lines = [f"{name}: {value}" for name, value in message.headers]
    body = b"".join(message.buffers)
    options = _patient(read_timeout=0.4, min_rate=1000.0)
    with server_here(registry, options, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(head("/v2/models/windows/infer", *lines), body[: message.header_length])
        assert _drip(wire, body[message.header_length :]).status == 408


def test_the_time_that_a_model_takes_between_windows_is_not_the_clients(backend: str) -> None:
    def count(request: InferenceRequest) -> Outputs:
        total = 0
        for window in request.rows["x"].windows:
            total += len(window)
            time.sleep(0.2)
        return {"y": np.array([total])}

    registry = _registry()
    registry.add(Model(name="windows", predict=count, windows=Windows(max_window_bytes=4000)))
    options = _patient(request_timeout=1.5)
    with server_here(registry, options, backend=backend) as (_, address), Wire(address) as wire:
        assert wire.send(infer_request("windows", count=10_000)).response().status == 200


def test_the_rest_of_a_refused_request_has_no_more_time_than_others_and_no_second_answer(backend: str) -> None:
    options = _patient(read_timeout=0.2)
    with server_here(_registry(), options, backend=backend) as (_, address), Wire(address) as wire:
        answer = wire.send(head("/v2/models/nobody/infer", "Content-Length: 1000")).response()
        assert (answer.status, answer.is_last) == (404, False)
        assert wire.send(b"some").is_closed()


def test_an_answer_that_is_taken_slowly_ends_with_its_connection(backend: str) -> None:
    options = _patient(request_timeout=0.3, write_timeout=LONG)
    count = 1 << 22
    with server_here(_registry(), options, backend=backend) as (server, address), Wire(address) as wire:
        wire.send(infer_request("plain", count=count))
        received = 0
        for _ in range(60):
            received += len(wire.sock.recv(1000))
            time.sleep(0.01)
        with suppress(ConnectionError):  # the connection is broken off, or just ends
            while chunk := wire.sock.recv(1 << 20):
                received += len(chunk)
        assert received < 4 * count
        until(lambda: server.reserved_bytes == 0)


def _pipelined(loop: str, options: ServerOptions, seconds: float, nbytes: int, pause: float) -> bool:
    """Ask for as many small answers as one read may hold, read some slowly, then the rest; return whether all came."""
    listener = open_listener("127.0.0.1", 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 10)
    count, received = 1300, b""
    with server_here(_registry(), options, backend=loop, listener=listener) as (_, address), socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
        sock.settimeout(TIMEOUT)
        sock.connect(address)
        sock.sendall(GET_LIVE * count)
        sock.shutdown(socket.SHUT_WR)
        end = time.monotonic() + seconds
        with suppress(ConnectionError):
            while time.monotonic() < end:
                received += sock.recv(nbytes)
                time.sleep(pause)
            while chunk := sock.recv(1 << 20):
                received += chunk
    answered = received.count(b"HTTP/1.1 200")
    assert answered
    return answered == count


def test_small_answers_that_are_taken_slowly_by_who_asks_no_more_end_with_their_connection(backend: str) -> None:
    options = _patient(request_timeout=0.3)
    assert not _pipelined(backend, options, seconds=0.6, nbytes=500, pause=0.01)


def test_small_answers_of_which_a_byte_is_taken_now_and_then_end_with_their_connection(backend: str) -> None:
    options = _patient(write_timeout=0.8, min_rate=1000.0)
    assert not _pipelined(backend, options, seconds=2.5, nbytes=1, pause=0.2)


def test_small_answers_that_are_taken_below_the_minimum_rate_end_with_their_connection(backend: str) -> None:
    options = _patient(write_timeout=1.0, min_rate=100_000.0)
    assert not _pipelined(backend, options, seconds=3.0, nbytes=200, pause=0.01)


def test_small_answers_that_nobody_takes_end_with_their_connection(backend: str) -> None:
    assert not _pipelined(backend, _patient(write_timeout=0.3), seconds=1.0, nbytes=1, pause=1.0)


def test_small_answers_that_are_taken_as_slowly_as_may_be_come_to_their_end(backend: str) -> None:
    options = _patient(write_timeout=0.8, min_rate=1000.0)
    assert _pipelined(backend, options, seconds=1.5, nbytes=500, pause=0.01)


# Models


@contextmanager
def _stuck(backend: str, options: ServerOptions) -> Iterator[tuple[Server, Address, threading.Event]]:
    """Serve a model "stuck" that returns when it is told to."""
    may_go = threading.Event()

    def wait(request: InferenceRequest) -> Outputs:
        assert may_go.wait(LONG)
        return dict(request.inputs)

    def take_windows(request: InferenceRequest) -> Outputs:
        assert may_go.wait(LONG)
        return {"y": np.array([len(list(request.rows["x"].windows))])}

    registry = _registry()
    registry.add(Model(name="stuck", predict=wait))
    registry.add(Model(name="stuck windows", predict=take_windows, windows=Windows(max_window_bytes=4096)))
    with server_here(registry, options, backend=backend) as (server, address):
        try:
            yield server, address, may_go
        finally:
            may_go.set()


@pytest.mark.parametrize("model", ["stuck", "stuck%20windows"])
def test_a_model_that_does_not_return_is_answered_504_and_counted(backend: str, model: str) -> None:
    with _stuck(backend, ServerOptions(model_timeout=0.2)) as (server, address, may_go), Wire(address) as wire:
        answer = wire.send(infer_request(model, count=4)).response()
        assert answer.status == 504
        assert answer.error == f"model '{model.replace('%20', ' ')}' has not answered within 0.2 seconds"
        assert (server.abandoned_calls, server.unfinished_calls) == (1, 1)
        may_go.set()
        until(lambda: server.unfinished_calls == 0 and server.reserved_bytes == 0)
        assert server.abandoned_calls == 1


def test_the_connection_is_good_for_other_requests_then(backend: str) -> None:
    with _stuck(backend, ServerOptions(model_timeout=1.0)) as (_, address, _), Wire(address) as wire:
        assert not wire.send(infer_request("stuck")).response().is_last
        assert wire.send(infer_request("plain")).response().status == 200


def test_threads_that_were_given_up_keep_their_places_and_others_are_told_to_come_back(backend: str) -> None:
    options = ServerOptions(model_timeout=1.0, max_workers=2)
    with _stuck(backend, options) as (server, address, may_go), Wire(address) as wire:
        for _ in range(2):
            assert wire.send(infer_request("stuck")).response().status == 504
        answer = wire.send(infer_request("plain")).response()
        assert (answer.status, answer.fields["retry-after"]) == (503, "1")
        assert wire.send(GET_LIVE).response().status == 200
        may_go.set()
        until(lambda: server.unfinished_calls == 0)
        until(lambda: wire.send(infer_request("plain")).response().status == 200)
        assert server.abandoned_calls == 2


def test_an_async_model_is_ended_and_not_given_up(backend: str) -> None:
    ended = threading.Event()

    async def sleep(request: InferenceRequest) -> Outputs:
        import anyio  # noqa: PLC0415 - only here

        try:
            await anyio.sleep(LONG)
        finally:
            ended.set()
        return dict(request.inputs)

    registry = _registry()
    registry.add(Model(name="sleeps", predict=sleep))
    with server_here(registry, ServerOptions(model_timeout=0.2), backend=backend) as (server, address):
        with Wire(address) as wire:
            assert wire.send(infer_request("sleeps")).response().status == 504
        assert ended.is_set()
        assert server.abandoned_calls == 0


def test_the_time_in_which_a_model_waits_for_its_client_is_not_its_own(backend: str) -> None:
    def count(request: InferenceRequest) -> Outputs:
        return {"y": np.array([sum(len(window) for window in request.rows["x"].windows)])}

    registry = _registry()
    registry.add(Model(name="windows", predict=count, windows=Windows(max_window_bytes=64)))
    request = infer_request("windows", count=400)
    with (
        server_here(registry, ServerOptions(model_timeout=1), backend=backend) as (_, address),
        Wire(address) as wire,
    ):
        wire.send(request[:-100])
        time.sleep(1.3)
        assert wire.send(request[-100:]).response().status == 200
