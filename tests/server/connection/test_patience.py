"""Patience: how many connections a server holds, and how long it waits for each of them."""

from __future__ import annotations

import gc
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Iterator

import anyio
import pytest

from streamcodec.server import Server, ServerOptions, open_listener
from streamcodec.service import Service
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, head, infer_request, post
from tests.waiting import until

Address = tuple[str, int]
TARGET = "/v2/models/identity/infer"


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def impatient(backend: str) -> Iterator[Address]:
    options = ServerOptions(idle_timeout=0.4, read_timeout=0.2, write_timeout=0.3)
    with server_here(models(), options, backend=backend) as (_, address):
        yield address


def _seconds(began: float) -> float:
    return time.monotonic() - began


def test_an_idle_connection_is_closed_without_a_word(impatient: Address) -> None:
    with Wire(impatient) as fresh, Wire(impatient) as used:
        began = time.monotonic()
        assert used.send(GET_LIVE).response().status == 200
        assert fresh.is_closed()
        assert used.is_closed()
        assert _seconds(began) > 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [b"P", head(TARGET)[:-3], post(b"12345")[:-4], infer_request()[:-1]],
    ids=["first byte", "most of the head", "first byte of the body", "last byte missing"],
)
def test_a_request_that_stops_is_answered_408(impatient: Address, start: bytes) -> None:
    with Wire(impatient) as wire:
        began = time.monotonic()
        answer = wire.send(start).response()
        assert (answer.status, answer.is_last) == (408, True)
        assert "slow" in answer.error
        assert wire.is_closed()
        assert _seconds(began) > 0.1


@pytest.mark.slow
def test_slow_is_not_stopped(backend: str) -> None:
    options = ServerOptions(read_timeout=1.5)
    with server_here(models(), options, backend=backend) as (_, address), Wire(address) as wire:
        request = infer_request()
        step = len(request) // 8 + 1
        for start in range(0, len(request), step):
            wire.send(request[start : start + step])
            time.sleep(0.3)
        assert wire.response().status == 200


@pytest.mark.slow
def test_a_client_that_does_not_read_is_given_up(impatient: Address) -> None:
    with Wire(impatient) as wire:
        wire.send(post(_number(1 << 26), model="large"))
        time.sleep(2)
        received = 0
        with pytest.raises(ConnectionError):  # noqa: PT012 - until then it gets what was under way
            while chunk := wire.sock.recv(1 << 20):
                received += len(chunk)
            raise ConnectionResetError
        assert received < 1 << 26


def test_connections_beyond_the_cap_are_told_when_to_come_back(backend: str) -> None:
    request = infer_request()
    with server_here(models(), ServerOptions(max_connections=2), backend=backend) as (_, address):
        with Wire(address) as first, Wire(address) as second:
            for wire in (first, second):
                wire.send(request[:-1])
            until(lambda: _is_full(address))
            for refused in (infer_request(), head(TARGET, "Content-Length: 1000000000")):
                with Wire(address) as third:
                    answer = third.send(refused).response()
                    assert (answer.status, answer.fields["retry-after"], answer.is_last) == (503, "1", True)
                    assert third.is_closed()
            answer = first.send(request[-1:]).response()
            assert (answer.status, answer.is_last) == (200, False), "others do not suffer from those on top"
            with Wire(address) as waiting:
                second.sock.close()
                answer = waiting.send(infer_request()).response()
                assert (answer.status, answer.is_last) == (200, False)
        with Wire(address) as wire:
            assert wire.send(GET_LIVE).response().status == 200


def _is_full(address: Address) -> bool:
    """Whether an ordinary request is refused. It leaves no connection."""
    with Wire(address) as wire:
        return wire.send(head("/v2", method="GET")).response().status == 503


@pytest.mark.slow
def test_stop_lets_requests_end_and_closes_idle_connections(backend: str) -> None:
    answers = []
    with server_here(models(), backend=backend) as (server, address):
        idle, begun, busy = Wire(address), Wire(address), Wire(address)
        idle.send(GET_LIVE).response()
        begun.send(infer_request()[:40])  # within the head
        busy.send(post(_number(1.5), model="sleep"))
        until(lambda: server.load().connections == 3 and server.load().busy_threads == 1)
        reader = threading.Thread(target=lambda: answers.append(busy.response()))
        reader.start()
        ender = threading.Timer(0.4, lambda: begun.send(infer_request()[40:]))
        ender.start()
    reader.join()
    assert server.is_stopping
    assert [(answer.status, answer.is_last) for answer in answers] == [(200, True)]
    assert begun.response().status == 200
    assert idle.is_closed()
    for wire in (idle, begun, busy):
        wire.sock.close()


def test_a_request_that_takes_too_long_to_end_is_given_up(backend: str) -> None:
    options = ServerOptions(shutdown_timeout=0.2)
    with server_here(models(), options, backend=backend) as (server, address):
        wire = Wire(address)
        wire.send(post(_number(1.0), model="sleep"))
        until(lambda: server.load().busy_threads == 1)
    assert server.abandoned_calls == 1
    assert wire.is_closed()
    wire.sock.close()


def test_a_server_that_was_stopped_before_it_serves_does_not_serve(backend: str) -> None:
    async def main() -> None:
        server = Server(Service(models()))
        server.stop()
        with anyio.fail_after(60):
            await server.serve(open_listener("127.0.0.1", 0))

    anyio.run(main, backend=backend)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")  # noqa: PTH112
def test_nothing_is_left_of_200_connections(backend: str) -> None:
    with server_here(models(), ServerOptions(read_timeout=60), backend=backend) as (server, address):
        with Wire(address) as wire:
            wire.send(infer_request()).response()  # the first worker thread
        time.sleep(0.2)
        files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208
        for number in range(200):
            with Wire(address) as wire:
                match number % 5:
                    case 0:
                        wire.send(infer_request()).response()
                    case 1:
                        wire.send(infer_request()[: number * 2])
                    case 2:
                        wire.send(post(b"{")).response()
                    case 3:
                        wire.send(infer_request("break"))
                    case _:
                        wire.sock.shutdown(socket.SHUT_WR)
                        assert wire.is_closed()
        deadline = time.monotonic() + 60
        while len(os.listdir("/proc/self/fd")) > files and time.monotonic() < deadline:  # noqa: PTH208
            time.sleep(0.05)
        assert len(os.listdir("/proc/self/fd")) == files  # noqa: PTH208
        assert threading.active_count() <= threads + 8
        assert not server._listening.peers  # noqa: SLF001 - nothing else tells
        assert not server._admission._served  # noqa: SLF001 - nothing else tells


@pytest.mark.slow
@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_what_a_request_had_is_free_once_its_client_has_gone_and_waits_for_no_collector(
    loop: str, is_reset: bool
) -> None:
    with server_here(models(), backend=loop) as (server, address):
        gc.collect()
        gc.disable()
        try:
            with Wire(address) as wire:
                wire.send(head(TARGET, "Content-Length: 1000000"))
                until(lambda: bool(server._listening.peers))  # noqa: SLF001 - nothing else tells
                session = weakref.ref(next(iter(server._listening.peers)).session)  # noqa: SLF001 - as before
                if is_reset:
                    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            until(lambda: session() is None)
        finally:
            gc.enable()


def _number(value: float) -> bytes:
    tensor = b'{"name":"x","datatype":"FP64","shape":[1],"data":[%f]}' % value
    return b'{"inputs":[%b],"parameters":{"binary_data_output":true}}' % tensor
