"""Admission: nobody shuts others out, by doing nothing or by coming in crowds; health checks are always answered."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any

import anyio
import pytest

from streamcodec.server import Server, ServerOptions, serving
from streamcodec.server.connection import admission, lingering
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session
from streamcodec.service import InferenceRequest, Model, Service
from streamcodec.service.models.model import Outputs
from streamcodec.transports import turns as lane
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, head, infer_request

Address = tuple[str, int]
TARGET = "/v2/models/identity/infer"
GET_READY = head("/v2/health/ready", method="GET")
UNFINISHED = infer_request()[:-1]


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# The order in which connections leave


@dataclass(eq=False)
class Someone:
    """Serves a connection, and is idle or not."""

    is_idle: bool = True
    has_left: bool = False

    def leave(self) -> None:
        self.has_left = True


def _enter(admission: Admission, count: int) -> list[tuple[Session, Someone]]:
    service = Service(models())
    guests = [(Session(service, RequestCache(service), admission), Someone()) for _ in range(count)]
    assert all(admission.enter(session, guest) for session, guest in guests)
    return guests


def test_the_one_that_was_idle_for_the_longest_time_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RESERVED_PLACES", 2)
    desk = Admission(ServerOptions(max_connections=1))
    (a, first), (_, second), (_, third) = _enter(desk, 3)
    desk.used(a)
    _enter(desk, 1)
    assert (first.has_left, second.has_left, third.has_left) == (False, True, False)
    third.is_idle = False
    _enter(desk, 1)
    assert first.has_left
    third.is_idle = True
    _enter(desk, 1)
    assert not third.has_left, "who was busy is idle only since then"


def test_only_where_nobody_is_idle_is_there_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RESERVED_PLACES", 1)
    desk = Admission(ServerOptions(max_connections=1))
    guests = _enter(desk, 2)
    for _, guest in guests:
        guest.is_idle = False
    service = Service(models())
    late = Session(service, RequestCache(service), desk)
    assert not desk.enter(late, Someone())
    assert not any(guest.has_left for _, guest in guests)
    desk.forget(guests[0][0])
    assert desk.enter(late, Someone())


def test_a_seat_is_taken_from_who_has_one() -> None:
    desk = Admission(ServerOptions(max_connections=1))
    (a, first), (b, second), (c, _) = _enter(desk, 3)
    assert desk.admits(b)
    assert not desk.admits(a)
    assert desk.makes_room(c)
    assert (first.has_left, second.has_left) == (False, True)
    assert desk.admits(c)
    assert not desk.admits(a)


def test_who_has_had_its_last_answer_leaves_before_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RESERVED_PLACES", 2)
    desk = Admission(ServerOptions(max_connections=1))
    (_, first), (_, second), (c, third) = _enter(desk, 3)
    desk.used(c, is_last=True)
    _enter(desk, 1)
    assert (first.has_left, second.has_left, third.has_left) == (False, False, True)


# Over sockets


def _wait_for_seats(server: Server, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(server._admission._served) < count and time.monotonic() < deadline:  # noqa: SLF001 - nothing else tells
        time.sleep(0.01)


IDLE: dict[str, Callable[[Wire], object]] = {
    "nothing": lambda _: None,
    "half a head": lambda wire: wire.send(GET_LIVE[:-4]),
    "an answered request": lambda wire: wire.send(infer_request()).response(),
    "an answered request and half a head": lambda wire: wire.send(infer_request(), GET_LIVE[:-4]).response(),
    "a refused request whose body does not come": lambda wire: wire.send(
        head("/v2/models/nobody/infer", "Content-Length: 1000")
    ).response(),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", IDLE)
def test_connections_that_ask_for_nothing_shut_nobody_out(backend: str, what: str) -> None:
    options = ServerOptions(max_connections=8, idle_timeout=600, head_timeout=600, read_timeout=600)  # no other way out
    with server_here(models(), options, backend=backend) as (server, address), ExitStack() as stack:
        for _ in range(8 + admission.RESERVED_PLACES + 10):
            IDLE[what](stack.enter_context(Wire(address)))
        for request in (GET_LIVE, infer_request(), GET_READY):
            with Wire(address) as wire:
                assert wire.send(request).response().status == 200
        assert len(server._admission._guests) <= 8 + admission.RESERVED_PLACES  # noqa: SLF001 - nothing else tells


@pytest.mark.parametrize("request_", [GET_LIVE, GET_READY, head("/v2/health/live", method="HEAD")])
def test_a_health_check_is_answered_although_all_seats_are_taken(backend: str, request_: bytes) -> None:
    with (
        server_here(models(), ServerOptions(max_connections=2), backend=backend) as (server, address),
        ExitStack() as stack,
    ):
        busy = [stack.enter_context(Wire(address)).send(UNFINISHED) for _ in range(2)]
        _wait_for_seats(server, 2)
        for _ in range(3):
            with Wire(address) as wire:
                answer = wire.send(request_).response(has_body=request_ != head("/v2/health/live", method="HEAD"))
                assert (answer.status, answer.is_last) == (200, True)
        with Wire(address) as wire:
            assert wire.send(head("/v2/health/live")).response().status == 503, "POST is no health check"
        assert [wire.send(infer_request()[-1:]).response().status for wire in busy] == [200, 200]


def test_who_connects_has_time_to_ask_although_others_come_after_it(backend: str) -> None:
    with (
        server_here(models(), ServerOptions(max_connections=1), backend=backend) as (server, address),
        Wire(address) as busy,
        ExitStack() as stack,
    ):
        busy.send(UNFINISHED)
        _wait_for_seats(server, 1)
        wires = [stack.enter_context(Wire(address)) for _ in range(admission.RESERVED_PLACES)]
        assert wires[0].send(GET_LIVE).response().status == 200
        assert busy.send(infer_request()[-1:]).response().status == 200


@contextmanager
def _without_a_place(backend: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """Serve with all places taken, by one connection that is in the middle of a request and has its answer then."""
    monkeypatch.setattr(admission, "RESERVED_PLACES", 0)
    with (
        server_here(models(), ServerOptions(max_connections=1), backend=backend) as (server, address),
        Wire(address) as busy,
    ):
        busy.send(UNFINISHED)
        _wait_for_seats(server, 1)
        yield address
        assert busy.send(infer_request()[-1:]).response().status == 200


def test_where_nobody_can_leave_a_new_connection_is_told_so_at_once(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _without_a_place(backend, monkeypatch) as address, Wire(address) as wire:
        answer = wire.response()
        assert (answer.status, answer.fields["retry-after"], answer.is_last) == (503, "1", True)
        assert wire.is_closed()


def test_who_is_told_that_there_is_no_place_can_read_it_while_it_sends(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _without_a_place(backend, monkeypatch) as address:
        with Wire(address) as wire:
            for _ in range(20):
                wire.send(bytes(1 << 16))
                time.sleep(0.01)
            assert wire.response().status == 503
        monkeypatch.setattr(lingering, "_LINGERING_AT_ONCE", 0)
        with Wire(address) as wire:
            assert wire.response().status == 503


@pytest.mark.parametrize(
    "data",
    [
        head("/v2/models/nobody/infer", "Content-Length: 1000000000000"),
        head("/v2/models/nobody/infer", "Transfer-Encoding: chunked"),
        head("/v2/models/nobody/infer", "Content-Length: 1000"),
        head("/v2/models/nobody") * 2,
    ],
)
def test_who_has_asked_for_little_does_not_wait_for_the_lane(
    backend: str, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """Else refused connections came faster than they went, by one in each turn, and kept their seats from others."""
    taken: list[object] = []
    real = lane.work

    async def work(source: Any) -> None:  # noqa: ANN401 - as the real one
        taken.append(source)
        await real(source)

    monkeypatch.setattr(lane, "work", work)
    with server_here(models(), backend=backend) as (_, address), Wire(address) as wire:
        wire.send(data)
        for _ in range(data.count(b"\r\n\r\n")):
            wire.response()
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.is_closed()
    assert not taken


def test_who_lingers_makes_room_too(backend: str) -> None:
    options = ServerOptions(max_connections=1, linger_timeout=30)
    refused = head("/v2/models/nobody/infer", "Content-Length: 1000000000000")
    with server_here(models(), options, backend=backend) as (_, address), Wire(address) as refused_one:
        assert refused_one.send(refused).response().is_last
        with Wire(address) as wire:
            assert wire.send(infer_request()).response().status == 200
        assert refused_one.is_closed()


# What goes wrong while a connection is set up


@pytest.mark.parametrize("name", ["Session", "Driver"])
def test_no_memory_for_a_connection_ends_that_one_only(
    backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    real = getattr(serving, name)
    failures = [MemoryError(), MemoryError()]

    def make(*arguments: Any) -> Any:  # noqa: ANN401 - as the real one
        if failures:
            raise failures.pop()
        return real(*arguments)

    with server_here(models(), backend=backend) as (server, address):
        monkeypatch.setattr(serving, name, make)
        for _ in range(2):
            with Wire(address) as wire:
                assert wire.response().status == 503
                assert wire.is_closed()
        with Wire(address) as wire:
            assert wire.send(GET_LIVE).response().status == 200
            assert (len(server._listening.peers), len(server._admission._guests)) == (1, 1)  # noqa: SLF001 - nothing else tells
    assert not caplog.records


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")  # noqa: PTH112
def test_a_failure_to_open_a_channel_leaves_no_socket(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoChannelError(Exception):
        pass

    def fail(*_: object) -> None:
        raise NoChannelError

    with server_here(models(), backend=backend) as (server, address):
        with Wire(address) as wire:
            wire.send(GET_LIVE).response()
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        with monkeypatch.context() as patches:
            patches.setattr(serving, "SocketChannel" if backend == "trio" else "ProtocolChannel", fail)
            for _ in range(5):
                with Wire(address) as wire:
                    assert wire.is_closed()
        assert len(os.listdir("/proc/self/fd")) <= files  # noqa: PTH208
        assert not server._listening.peers  # noqa: SLF001 - nothing else tells
        with Wire(address) as wire:
            assert wire.send(GET_LIVE).response().status == 200


# A busy event loop accepts


@contextmanager
def _slow_turns(backend: str, seconds: float) -> Iterator[tuple[Address, list[None]]]:
    """Serve on an event loop whose every turn takes so long; note each of them."""
    has_ended, turns = Event(), list[None]()

    async def spin(request: InferenceRequest) -> Outputs:
        while not has_ended.is_set():
            turns.append(None)
            time.sleep(seconds)  # noqa: ASYNC251 - it is to hold up the event loop
            await anyio.lowlevel.checkpoint()
        return dict(request.inputs)

    registry = models()
    registry.add(Model(name="spin", predict=spin))
    with server_here(registry, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(infer_request("spin"))
        try:
            yield address, turns
        finally:
            has_ended.set()
            wire.response()


@pytest.mark.slow
def test_a_busy_event_loop_accepts_all_that_are_there(backend: str) -> None:
    with _slow_turns(backend, 0.03) as (address, turns), ExitStack() as stack:
        wires = [stack.enter_context(Wire(address)) for _ in range(200)]
        for wire in wires:
            wire.send(GET_LIVE)
        before = len(turns)
        for wire in wires:
            assert wire.response().status == 200
        assert len(turns) - before < 130, "some turns for all, and not 200"


def test_a_connection_that_is_reset_in_the_queue_keeps_nobody_waiting(backend: str) -> None:
    with server_here(models(), backend=backend) as (_, address):
        for _ in range(20):
            with socket.create_connection(address) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        with Wire(address) as wire:
            assert wire.send(GET_LIVE).response().status == 200
