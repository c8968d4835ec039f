"""Rules of single rooms of the server, without sockets or with one: each is what another test relies upon."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import checkpoint

from streamcodec import NEED_DATA, NEED_TURN, RemoteProtocolError
from streamcodec.server import Server, ServerOptions, open_listener
from streamcodec.server.connection import lingering
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.lingering import UnreadRest
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.server.sockets.accepting import accept_connections
from streamcodec.service import Service
from streamcodec.service.memory.budget import Budget, Reservation
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, head, infer_request
from tests.waiting import SECONDS, until

MIB = 1 << 20


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Lingering


def test_a_refused_client_that_dawdles_is_cut_off_in_time(backend: str) -> None:
    options = ServerOptions(linger_timeout=0.2)
    with server_here(models(), options, backend=backend) as (_, address), Wire(address) as wire:
        refused = head("/v2/models/nobody/infer", "Content-Length: 1000000000000")
        assert wire.send(refused).response().is_last
        began = time.monotonic()
        with pytest.raises(ConnectionError):  # noqa: PT012 - until then it may send
            while time.monotonic() < began + SECONDS:
                wire.send(b"x")
                time.sleep(0.02)
        assert time.monotonic() - began > 0.1


def test_what_is_left_of_a_refused_request_ends_once() -> None:
    rest = UnreadRest()
    assert rest.next_event() is not True
    rest.receive_eof()
    assert rest.next_event() is True


# Stopping


@contextmanager
def _stoppable(backend: str, options: ServerOptions) -> Iterator[tuple[Server, tuple[str, int], list[float]]]:
    """Run a server that is told to stop when the block ends; note how long that takes."""
    listener = open_listener("127.0.0.1", 0)
    took: list[float] = []
    with start_blocking_portal(backend) as portal:
        server = portal.call(Server, Service(models()), options)
        task = portal.start_task_soon(server.serve, listener)
        yield server, listener.getsockname(), took
        portal.call(server.stop)
        began = time.monotonic()
        task.result(60)
        took.append(time.monotonic() - began)


def test_a_request_that_is_half_there_has_the_time_to_stop_in(backend: str) -> None:
    body = infer_request()
    with start_blocking_portal(backend) as portal:
        listener = open_listener("127.0.0.1", 0)
        server = portal.call(Server, Service(models()), ServerOptions(shutdown_timeout=SECONDS))
        task = portal.start_task_soon(server.serve, listener)
        with Wire(listener.getsockname()) as wire:
            wire.send(body[:-1])
            until(lambda: server.requests_in_progress == 1)
            portal.call(server.stop)
            answer = wire.send(body[-1:]).response()
            assert (answer.status, answer.is_last) == (200, True)
        task.result(60)


def test_a_request_that_does_not_come_to_its_end_is_given_up_when_the_time_is_over(backend: str) -> None:
    with _stoppable(backend, ServerOptions(shutdown_timeout=0.3)) as (server, address, took):
        wire = Wire(address)
        wire.send(infer_request()[:-1])
        until(lambda: server.requests_in_progress == 1)
    wire.sock.close()
    assert took[0] > 0.2


# Places


def test_40_who_connect_at_once_all_have_the_time_to_ask_although_the_seats_are_taken(backend: str) -> None:
    """So many health checks come where a cluster restarts."""
    options = ServerOptions(max_connections=1)
    with server_here(models(), options, backend=backend) as (server, address), ExitStack() as stack:
        busy = stack.enter_context(Wire(address)).send(infer_request()[:-1])
        until(lambda: server.requests_in_progress == 1)
        wires = [stack.enter_context(Wire(address)) for _ in range(40)]
        assert [wire.send(GET_LIVE).response().status for wire in wires] == [200] * 40
        assert busy.send(infer_request()[-1:]).response().status == 200


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_socket_that_was_accepted_holds_nobody_up(backend: str) -> None:
    async def main() -> None:
        accepted: list[socket.socket] = []
        with open_listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
            listener.setblocking(False)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(accept_connections, listener, accepted.append, lambda: 0)
                while not accepted:
                    await checkpoint()
                tasks.cancel_scope.cancel()
            with accepted[0] as sock:
                assert sock.getblocking() is False

    anyio.run(main, backend=backend)


def test_only_so_many_who_find_no_place_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are told, too, but may lose the answer."""
    monkeypatch.setattr(lingering, "_LINGERING_AT_ONCE", 2)
    waits: list[float] = []

    async def note(_: socket.socket, __: bytes, seconds: float) -> None:
        waits.append(seconds)
        await anyio.sleep(0.01)

    monkeypatch.setattr(lingering, "refuse", note)
    monkeypatch.setattr(Admission, "enter", lambda *_: False)

    async def main() -> None:
        server = Server(Service(models()), ServerOptions(linger_timeout=3))
        for count in (4, 1, 3):
            async with anyio.create_task_group() as tasks:
                for _ in range(count):
                    tasks.start_soon(server._listening._connection, socket.socket())  # noqa: SLF001 - nothing else is so quick

    anyio.run(main)
    assert waits == [3, 3, 0, 0, 3, 3, 3, 0]


# The budget


def test_who_comes_quickly_keeps_what_it_has() -> None:
    budget = Budget(100 * MIB, min_rate=1000.0)
    reservation = Reservation(budget)
    assert reservation.ask(50 * MIB)
    taken = 0
    reservation.taken = lambda: taken
    for second in range(1, 40):
        reservation.look(2.0 * second)
        taken += 4 * MIB if taken < 46 * MIB else 0
        if taken >= 46 * MIB:
            break
    assert reservation.nbytes == 50 * MIB


def test_a_budget_is_counted_in_whole_bytes() -> None:
    for most in (1, 10 * MIB + 7, (1 << 30) + 1):
        assert type(Budget(most).step_bytes) is int
    assert Reservation(Budget(MIB)).missing == 0


def test_a_budget_asks_for_no_rate_unless_it_is_told_to() -> None:
    assert Budget(MIB).min_rate == 0


def test_memory_that_is_granted_in_steps_counts_what_is_there_already() -> None:
    budget = Budget(100)
    reservation = Reservation(budget)
    other = Reservation(budget)
    assert reservation.ask(60)
    assert other.ask(30)
    assert not reservation.ask(80, held=50)
    assert (reservation.nbytes, reservation.missing) == (50, 30)


def test_a_request_that_waits_for_its_tensors_has_what_its_header_has_taken() -> None:
    """Its arrays are made already, and others shall not be given that memory."""
    budget_bytes = 64 * MIB
    desk = Admission(ServerOptions(max_memory_bytes=budget_bytes))
    assert Reservation(desk.budget).ask(40 * MIB)
    service = Service(models())
    session = Session(service, RequestCache(service), desk)
    count, nbytes = 300_000, 30 * MIB
    written = {"name": "x", "shape": [count], "datatype": "FP32", "data": [0] * count}
    sent = {"name": "y", "shape": [nbytes], "datatype": "UINT8", "parameters": {"binary_data_size": nbytes}}
    text = json.dumps({"inputs": [written, sent]}).encode()
    lengths = (f"Inference-Header-Content-Length: {len(text)}", f"Content-Length: {len(text) + nbytes}")
    rest = memoryview(head("/v2/models/identity/infer", *lengths) + text)
    while (step := session.next_event()) is not Step.WAIT:
        if step is NEED_TURN:
            session.work()
        else:
            assert step is NEED_DATA
            rest = rest[session.connection.feed(rest) :]
    assert session.reservation.missing
    assert session.reservation.nbytes > 4 * count


def test_what_is_compressed_is_worked_off_in_turns() -> None:
    session = _session()
    body = gzip.compress(bytes(MIB), mtime=0)
    fields = ("Content-Encoding: gzip", f"Content-Length: {len(body)}", "Inference-Header-Content-Length: 9")
    session.connection.feed(head("/v2/models/identity/infer", *fields))
    assert session.next_event() is NEED_DATA
    session.connection.feed(body)
    assert session.next_event() is NEED_TURN


def test_who_waits_for_a_turn_does_not_lose_its_memory_to_others() -> None:
    """The client has sent all; that its body is decompressed late, beside others, is not its fault."""
    desk = Admission(ServerOptions(max_memory_bytes=4 * MIB))
    service = Service(models())
    session = Session(service, RequestCache(service), desk)
    text = json.dumps({"inputs": [{"name": "x", "shape": [3 * MIB], "datatype": "UINT8", "data": []}]}).encode()
    text = text.replace(b'"data": []', b'"parameters": {"binary_data_size": %d}' % (3 * MIB))
    body = gzip.compress(text + bytes(3 * MIB), mtime=0)
    fields = (f"Content-Length: {len(body)}", f"Inference-Header-Content-Length: {len(text)}")
    session.connection.feed(head("/v2/models/identity/infer", "Content-Encoding: gzip", *fields) + body)
    while session.reservation.nbytes < 3 * MIB:
        assert session.next_event() is NEED_TURN
        session.work()
    assert session.next_event() is NEED_TURN
    other = Reservation(desk.budget)
    assert not other.ask(2 * MIB)
    before = session.reservation.nbytes
    for seconds in range(20):
        desk.budget.look(100.0 + seconds)
    assert not session.has_lost
    assert session.reservation.nbytes == before


# What is told


def test_who_has_no_memory_is_told_when_to_come_back() -> None:
    session = _session()
    session.connection.feed(infer_request()[:-1])
    session.next_event()
    session.refuse_for_memory()
    sent = _sent(session)
    assert b"HTTP/1.1 503 " in sent
    assert b"Retry-After: 1\r\n" in sent
    assert b"other requests use all of the server's memory" in sent


def test_a_client_that_has_gone_within_its_request_is_a_truncated_one() -> None:
    session = _session()
    session.connection.feed(infer_request()[:-1])
    session.next_event()
    error = session.lost()
    assert error.message
    with pytest.raises(RemoteProtocolError) as caught:
        session.connection.next_event()
    assert (caught.value.message, caught.value.code) == (error.message, error.code)


def test_where_all_seats_are_taken_that_is_told_in_words() -> None:
    options = ServerOptions(max_connections=1)
    service = Service(models())
    desk = Admission(options)
    first, second = (Session(service, RequestCache(service), desk) for _ in range(2))
    for session in (first, second):
        session.connection.feed(infer_request()[:-1])
        session.next_event()
    sent = _sent(second)
    assert b"the server has the maximum number of connections" in sent
    assert b"Retry-After: 1\r\n" in sent


def test_who_has_been_answered_last_does_not_wait_for_the_end_behind_others() -> None:
    service = Service(models())
    session = Session(service, RequestCache(service), Admission(ServerOptions()))
    found = [session.is_light]
    for part in (GET_LIVE[:-2], b"Connection: close\r\n\r\n"):
        session.connection.feed(part)
        found.append(session.is_light)
    assert session.next_event() is Step.SEND
    session.outgoing = []
    session.has_sent()
    found.append(session.is_light)
    assert found == [True, False, False, True], "at first nothing has come, and in the end it only has to be closed"
    assert session.next_event() is Step.CLOSE


@pytest.mark.parametrize("has_place", [False, True])
def test_whoever_has_come_and_waits_for_a_turn_is_not_sent_away_for_another(has_place: bool) -> None:
    service, desk = Service(models()), Admission(ServerOptions(max_connections=1))
    if not has_place:
        assert desk.admits(Session(service, RequestCache(service), desk))
    session = Session(service, RequestCache(service), desk)
    found = [session.is_spare]
    session.connection.feed(GET_LIVE[:-2])
    found.append(session.is_spare)
    assert session.next_event() is NEED_DATA
    found.append(session.is_spare)
    session.connection.feed(GET_LIVE[-2:])
    found.append(session.is_spare)
    assert found == [True, False, True, False], "nobody has looked at what has come; a part of a head is nothing"
    assert session.next_event() is Step.SEND


def test_no_calls_are_abandoned_in_the_beginning() -> None:
    async def main() -> tuple[int, int]:
        server = Server(Service(models()))
        return server.abandoned_calls, server.unfinished_calls

    assert anyio.run(main) == (0, 0)


def test_that_a_client_has_gone_is_no_news_but_for_who_debugs(caplog: pytest.LogCaptureFixture, backend: str) -> None:
    caplog.set_level(logging.DEBUG, "streamcodec")
    options = ServerOptions(read_timeout=0.2, write_timeout=0.2)
    with server_here(models(), options, backend=backend) as (_, address), Wire(address) as wire:
        wire.send(GET_LIVE).response()
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


def _session() -> Session:
    service = Service(models())
    return Session(service, RequestCache(service), Admission(ServerOptions()))


def _sent(session: Session) -> bytes:
    return b"".join(cast("list[bytes]", session.outgoing))
