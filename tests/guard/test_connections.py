"""Connections of the guard: their ends, their number, and TLS."""

from __future__ import annotations

import gc
import gzip
import json
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from streamcodec.client import Client
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.guard import Guard
from streamcodec.guard.link import Link
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.rules.screening import Screening
from streamcodec.http.server import ServerConnection
from streamcodec.runtime.timeouts import WriteTimeout
from streamcodec.server import ServerOptions, listening, open_listener, open_unix_listener
from streamcodec.server.connection.admission import Admission
from streamcodec.service import InferenceRequest, Model, ModelRegistry
from streamcodec.service.models.model import Outputs
from tests.client.scripted import hung_up, scripted
from tests.guard.serving import PATIENT, guarding, nobody
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.tlswire import TlsWire
from tests.server.wire import GET_LIVE, Wire, floats, head, infer_request, post
from tests.transports.certificates import client_side, server_side
from tests.waiting import until

ANSWER = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_client_that_leaves_ends_the_request_behind(backend: str) -> None:
    def wait(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        hung_up(sock)

    with scripted([wait]) as server, guarding(server.url, timeout=PATIENT, backend=backend) as guard:
        with Wire(guard) as wire:
            wire.send(infer_request())
        assert server.has_closed()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tls_on_both_sides(backend: str) -> None:
    with (
        server_here(models(), ssl_context=server_side()) as (_, (_, port)),
        guarding(
            f"https://localhost:{port}",
            backend=backend,
            ssl_context=server_side(),
            upstream_ssl_context=client_side(),
        ) as guard,
    ):
        with Client(f"https://localhost:{guard[1]}", ssl_context=client_side()) as client:
            x = np.arange(100_000, dtype=np.float32)
            for _ in range(2):
                assert np.array_equal(client.infer("identity", {"x": x})["x"], x)
        with Wire(guard) as wire:
            answer = wire.send(GET_LIVE).response()
            assert (answer.status, answer.is_last) == (400, True)
            assert "https://" in answer.error
        with Wire(guard) as wire:
            wire.send(b"\x16\x03\x01\x00\x05hello")
            while wire.sock.recv(1 << 16):  # the alert
                pass


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_who_begins_no_handshake_keeps_nobody_out_and_holds_up_no_stop(backend: str) -> None:
    options = ServerOptions(max_connections=1, handshake_timeout=600, shutdown_timeout=600)
    with (
        ExitStack() as stack,
        guarding(nobody(), options=options, backend=backend, ssl_context=server_side()) as guard,
    ):
        silent = [stack.enter_context(Wire(guard)) for _ in range(200)]
        with TlsWire(guard) as wire:
            assert wire.send(GET_LIVE).response().status == 502
        socks = [wire.sock for wire in silent]
        until(lambda: len(select.select(socks, [], [], 0)[0]) >= 200 - 65)  # they lose their places


def test_a_server_behind_whose_certificate_is_not_trusted(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        server_here(models(), ssl_context=server_side()) as (_, (_, port)),
        guarding(f"https://localhost:{port}") as guard,
        Wire(guard) as wire,
    ):
        assert wire.send(GET_LIVE).response().status == 502
    assert "--upstream-ca FILE names a file with the CA's certificate" in caplog.text


def test_a_client_without_a_place_is_told_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(Admission, "enter", lambda *_: False)
    with guarding(nobody()) as guard, Wire(guard) as wire:
        answer = wire.response()
        assert (answer.status, answer.is_last, answer.fields["retry-after"]) == (503, True, "1")
        assert "no place" in answer.error
    with caplog.at_level(logging.INFO), guarding(nobody(), ssl_context=server_side()) as guard, Wire(guard) as wire:
        assert wire.is_closed()
    assert "no place" in caplog.text


def test_a_request_beyond_the_seats_is_told_so_but_a_health_check_is_passed_on() -> None:
    begun, end = threading.Semaphore(0), threading.Semaphore(0)

    def predict(request: InferenceRequest) -> Outputs:
        begun.release()
        assert end.acquire(timeout=60)
        return request.inputs

    metadata = head("/v2/models/m", method="GET")
    with_body = head("/v2/health/live", "Content-Length: 5", method="GET") + b"12345"
    with (
        server_here(ModelRegistry.of([Model(name="m", predict=predict)])) as (_, (host, port)),
        guarding(f"http://{host}:{port}", options=ServerOptions(max_connections=1), timeout=PATIENT) as guard,
        Wire(guard) as first,
    ):
        first.send(infer_request("m"))
        assert begun.acquire(timeout=60)
        for request, status in ((GET_LIVE, 200), (metadata, 503), (with_body, 503)):
            with Wire(guard) as other:
                answer = other.send(request).response()
                assert (answer.status, answer.is_last) == (status, True)
                assert answer.fields.get("retry-after") == (None if status == 200 else "1")
        end.release()
        assert first.response().status == 200
        with Wire(guard) as other:  # the first is idle, and is closed for it
            assert other.send(metadata).response().status == 200
        assert first.is_closed()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), MemoryError()])
def test_a_failure_of_ours_ends_one_connection(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_link: Link, _channel: object) -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    with guarding(nobody()) as guard:
        with monkeypatch.context() as patched:
            patched.setattr(Link, "serve", fail)
            with Wire(guard) as wire:
                assert wire.is_closed()
        with Wire(guard) as wire:
            assert wire.send(GET_LIVE).response().status == 502
    assert "streamcodec.server.listening" in [record.name for record in caplog.records]


def test_a_guard_that_was_stopped_before_it_serves() -> None:
    guard = Guard(nobody())
    guard.stop()
    guard.stop()
    anyio.run(guard.serve, open_listener("127.0.0.1", 0))
    assert guard.is_stopping


def test_slow_clients_are_ended() -> None:
    with guarding(nobody(), options=ServerOptions(read_timeout=0.1, idle_timeout=0.1)) as guard:
        with Wire(guard) as wire:
            assert wire.send(b"GET /").response().status == 408
        with Wire(guard) as wire:
            assert wire.send(head("/v2/models/identity/infer", "Content-Length: 9"), b"{").response().status == 408
        with Wire(guard) as wire:
            assert wire.is_closed()


def test_unix_sockets_on_both_sides(tmp_path: Path) -> None:
    listener = open_unix_listener(tmp_path / "s")
    with (
        server_here(models(), listener=listener),
        guarding(f"http+unix://{quote(str(tmp_path / 's'), safe='')}", listener=open_unix_listener(tmp_path / "g")),
        Wire(str(tmp_path / "g")) as wire,
    ):
        assert floats(wire.send(infer_request()).response()) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "request_",
    [
        infer_request(count=1 << 15),
        infer_request(count=1 << 17),
        infer_request("identity", "Expect: 100-continue", count=1 << 17),
        head("/v2/repository/index", "Content-Length: 200000") + bytes(200_000),
        head("/v2/models/m/infer", "Content-Length: 70000", "Inference-Header-Content-Length: 0") + bytes(70_000),
        post(b'{"inputs":[],"parameters":{"a":"' + 70_000 * b"x" + b'"}}'),
    ],
)
def test_a_guard_without_memory_lets_clients_come_again(request_: bytes) -> None:
    options = ServerOptions(max_memory_bytes=100_000)
    with guarding(nobody(), options=options, allowed=["repository"]) as guard:
        for _ in range(2):
            with Wire(guard) as wire:
                answer = wire.send(request_).response()
                assert (answer.status, answer.fields["retry-after"]) == (503, "1")
                assert "no memory" in answer.error
        with Wire(guard) as wire:
            assert wire.send(infer_request()).response().status == 502


def test_memory_is_given_back() -> None:
    options = ServerOptions(max_memory_bytes=5 << 20)
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}", options=options) as guard,
        Wire(guard) as wire,
    ):
        for count in (1 << 15, 1 << 19, 1 << 19, 1 << 15, 4):
            assert len(floats(wire.send(infer_request(count=count)).response())) == count


def test_a_connection_that_is_gone_and_one_that_comes_while_the_guard_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard(nobody(), options=ServerOptions(idle_timeout=60))
    ours, theirs = socket.socketpair()

    async def accept(_listener: socket.socket, start: Callable[[socket.socket], None], *_: object) -> None:
        ours.setblocking(False)
        start(ours)
        start(socket.socket())  # it has no peer
        guard.stop()
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(listening, "accept_connections", accept)
    with theirs:
        anyio.run(guard.serve, open_listener("127.0.0.1", 0))
        assert theirs.recv(1) == b""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stop_ends_requests_that_take_too_long(backend: str) -> None:
    def wait(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        hung_up(sock)

    options = ServerOptions(shutdown_timeout=0.1)
    with scripted([wait]) as server:
        with guarding(server.url, timeout=PATIENT, options=options, backend=backend) as guard, Wire(guard) as wire:
            wire.send(infer_request())
            time.sleep(0.1)
        assert server.has_closed()


def test_a_connection_takes_no_memory_while_it_waits() -> None:
    looks = iter((0.01, 0.01))

    def look(_: float) -> float:
        if (seconds := next(looks, None)) is None:
            raise TimeoutError
        return seconds

    def borrow(sizehint: int = -1) -> memoryview:
        pytest.fail(f"it has taken memory: {sizehint}")

    async def wait(sock: socket.socket) -> None:
        connection = ServerConnection()
        connection.get_buffer = borrow
        await PieceChannel(sock, WriteTimeout(ServerOptions())).next_event(connection, look)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        with pytest.raises(TimeoutError):
            anyio.run(wait, ours)


def test_the_url_of_the_server_behind_has_no_password() -> None:
    with pytest.raises(LocalProtocolError, match="no user and password"):
        Guard("http://user:secret@127.0.0.1:1")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_long_work_is_done_in_turns(backend: str) -> None:
    values = [0.5] * 40_000
    text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}]}).encode()
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}", backend=backend) as guard,
        Wire(guard) as wire,
    ):
        answer = wire.send(post(text)).response()
        assert json.loads(answer.body)["outputs"][0]["data"] == values


def test_nothing_of_a_connection_is_left_to_the_collector() -> None:
    """It looks seldom, and each of these may have a JSON header of megabytes."""
    too_long = gzip.compress(b'{"inputs":[' + b"{}," * 1_000_000, compresslevel=1)
    fields = (f"Content-Length: {len(too_long)}", "Content-Encoding: gzip")
    requests = [infer_request(), GET_LIVE, post(b"{}"), b"x\r\n\r\n", head("/v2/models/m/infer", *fields) + too_long]

    def count() -> int:
        return sum(isinstance(item, Link | Screening) for item in gc.get_objects())

    gc.collect()
    before = count()  # logs of other tests have some
    gc.disable()
    try:
        with server_here(models()) as (_, (host, port)), guarding(f"http://{host}:{port}") as guard:
            for request in requests:
                with Wire(guard) as wire:
                    wire.send(request).response()
                    wire.sock.shutdown(socket.SHUT_WR)
                    assert wire.is_closed()
            end = time.monotonic() + 60
            while count() > before and time.monotonic() < end:  # it closes connections before it forgets them
                time.sleep(0.02)
            assert count() <= before
    finally:
        gc.enable()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_answer_in_very_short_chunks(backend: str) -> None:
    def answer(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(ANSWER + b"Transfer-Encoding: chunked\r\n\r\n" + 500 * b"1;x\r\nz\r\n" + b"0\r\n\r\n")

    with scripted([answer]) as server, guarding(server.url, backend=backend) as guard, Wire(guard) as wire:
        wire.send(GET_LIVE)
        came = b""
        while not came.endswith(b"0\r\n\r\n"):
            came += wire.sock.recv(1 << 16)
        assert came.count(b"z") == 500
