"""Draining: what a server does from the moment it is told to stop until it ends, and that no request is lost by it."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TypeVar

import pytest
from anyio.from_thread import start_blocking_portal

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.runtime import timeouts
from streamcodec.server import Server, ServerOptions, open_listener
from streamcodec.service import Service
from tests.server.asking import asking
from tests.server.models import models
from tests.server.tlswire import TlsWire
from tests.server.wire import GET_LIVE, Answer, Wire, head, infer_request, post
from tests.transports.certificates import client_side, server_side
from tests.waiting import SECONDS, until

Address = tuple[str, int]
T = TypeVar("T")
GET_READY = head("/v2/health/ready", method="GET")


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Stopping:
    """A server that a test stops."""

    def __init__(self, server: Server, address: Address, *, tls: bool) -> None:
        self.server = server
        self.connect = partial(TlsWire if tls else Wire, address)
        self.address = address
        self.has_ended = threading.Event()
        self.stop: Callable[[], None] = self.has_ended.clear
        self.seconds = 0.0


@contextmanager
def _server(backend: str, options: ServerOptions, *, tls: bool = False) -> Iterator[Stopping]:
    """Run a server; at the end of the block it must have been stopped."""
    settings = {"use_uvloop": True} if backend == "uvloop" else None
    with (
        open_listener("127.0.0.1", 0) as listener,
        start_blocking_portal("asyncio" if settings else backend, settings) as portal,
    ):
        server = portal.call(partial(Server, Service(models()), options, ssl_context=server_side() if tls else None))
        shown = Stopping(server, listener.getsockname(), tls=tls)
        task = portal.start_task_soon(server.serve, listener)
        began = [0.0]

        def stop() -> None:
            began[0] = time.monotonic()
            portal.call(server.stop)

        def ended(_: object) -> None:
            shown.seconds = time.monotonic() - began[0]
            shown.has_ended.set()

        task.add_done_callback(ended)
        shown.stop = stop
        yield shown
        if not began[0]:
            stop()
        task.result(60)


@pytest.mark.slow
def test_readiness_turns_first_and_everything_is_served(backend: str) -> None:
    """A load balancer that looks at readiness has the whole delay to notice."""
    options = ServerOptions(drain_delay=4.0, shutdown_timeout=600)
    with _server(backend, options) as server, server.connect() as kept:
        assert not kept.send(infer_request()).response().is_last
        server.stop()
        for _ in range(3):
            with server.connect() as check, server.connect() as new:
                assert check.send(GET_READY).response().status == 503
                answer = new.send(infer_request()).response()
                assert (answer.status, answer.is_last) == (200, True)
        answer = kept.send(infer_request()).response()
        assert (answer.status, answer.is_last) == (200, True)
    assert server.seconds > 3.9, "and it ends by itself, because nobody is there after the delay"


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
def test_after_the_delay_nobody_listens(backend: str, tls: bool) -> None:
    options = ServerOptions(drain_delay=0.2, shutdown_timeout=600)
    with _server(backend, options, tls=tls) as server, server.connect() as busy:
        _begin(server, busy)
        server.stop()
        until(lambda: not _takes_connections(server))
        answer = busy.send(infer_request()[-1:]).response()
        assert (answer.status, answer.is_last) == (200, True)
        assert server.has_ended.wait(SECONDS), "it ends when the last request has ended, and not by its limit"


def _begin(server: Stopping, busy: Wire) -> None:
    """Send a request but for its last byte, and wait until it is in progress."""
    busy.send(infer_request()[:-1])
    until(lambda: server.server.requests_in_progress == 1)


def _asked(server: Stopping) -> Answer:
    """Return the answer to a request on a connection of its own."""
    with server.connect() as new:
        return new.send(infer_request()).response()


@pytest.mark.slow
def test_all_of_it_has_one_limit(backend: str) -> None:
    options = ServerOptions(drain_delay=0.5, shutdown_timeout=1.0)
    with _server(backend, options) as server, server.connect() as busy:
        _begin(server, busy)
        server.stop()
        end = time.monotonic() + SECONDS
        while not server.has_ended.is_set() and time.monotonic() < end:  # who keeps asking does not keep it
            with suppress(ConnectionError, AssertionError):
                _asked(server)
        assert server.has_ended.is_set()
        assert busy.is_closed()
    assert server.seconds > 0.9


def test_without_a_delay_it_takes_no_more_at_once(backend: str) -> None:
    with _server(backend, ServerOptions()) as server, server.connect() as busy:
        _begin(server, busy)
        server.stop()
        until(lambda: not _takes_connections(server))
        assert busy.send(infer_request()[-1:]).response().status == 200


def _takes_connections(server: Stopping) -> bool:
    try:
        server.connect().sock.close()
    except ConnectionError:
        return False
    return True


def test_a_connection_that_was_used_just_now_has_a_moment(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client may have sent the next request already. The moment is a long one here, and not used up."""
    monkeypatch.setattr(timeouts, "LAST_REQUEST_SECONDS", 600.0)
    options = ServerOptions(shutdown_timeout=600)
    with _server(backend, options) as server, server.connect() as kept, server.connect() as fresh:
        kept.send(GET_LIVE).response()
        until(lambda: server.server.load().connections == 2)
        server.stop()
        for wire in (kept, fresh):
            answer = wire.send(infer_request()).response()
            assert (answer.status, answer.is_last) == (200, True)


@pytest.mark.parametrize("drain_delay", [0.0, 0.1])
def test_a_handshake_that_has_begun_is_ended(backend: str, drain_delay: float) -> None:
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_side().wrap_bio(coming, going, server_hostname="localhost")
    options = ServerOptions(drain_delay=drain_delay)
    with _server(backend, options, tls=True) as server, Wire(server.address) as wire:

        def go_on(act: Callable[[], T]) -> T:
            while True:
                with suppress(ssl.SSLWantReadError):
                    done = act()
                    wire.send(going.read())
                    return done
                wire.send(going.read())
                coming.write(wire.sock.recv(1 << 16))

        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = going.read()
        wire.send(hello[:9])
        until(lambda: server.server.load().connections == 1)
        time.sleep(0.1)  # what has come is read
        server.stop()
        time.sleep(0.4)  # more than the moment of those who have not begun
        wire.send(hello[9:])
        go_on(tls.do_handshake)
        go_on(lambda: tls.write(infer_request()))
        assert go_on(lambda: tls.read(1 << 16)).startswith(b"HTTP/1.1 200")


@pytest.mark.quiet
def test_an_idle_connection_has_no_moment(backend: str) -> None:
    options = ServerOptions(read_timeout=0.2)  # so it is looked at often
    with _server(backend, options) as server, server.connect() as kept:
        kept.send(GET_LIVE).response()
        time.sleep(0.6)
        server.stop()
        assert server.has_ended.wait(60)
        assert kept.is_closed()
    assert server.seconds < 0.2


def test_who_has_connected_before_is_answered(backend: str) -> None:
    """Connections that the system keeps for the listening socket would be reset when it is closed."""
    with _server(backend, ServerOptions(max_connections=256)) as server, ExitStack() as stack:
        with server.connect() as holding:
            holding.send(post(b'{"inputs":[]}', model="identity"))
        wires = [stack.enter_context(server.connect()) for _ in range(100)]
        for wire in wires:
            wire.send(infer_request())
        server.stop()
        assert {wire.response().status for wire in wires} <= {200, 503}


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_nothing_is_lost_under_load(backend: str, delay: float, is_kept: bool, tls: bool) -> None:
    """16 clients ask without a break, on new connections or on one that they keep until they are told that it ends."""
    request = infer_request(count=100)
    with (
        _server(backend, ServerOptions(drain_delay=delay), tls=tls) as server,
        asking(server.connect, request, is_kept=is_kept, count=16) as asked,
    ):
        until(lambda: len(asked.answered) > 100)
        server.stop()
        assert server.has_ended.wait(SECONDS)
    assert {answer.status for answer in asked.answered} == {200}
    assert not asked.lost


def test_a_delay_is_a_part_of_the_time_to_stop() -> None:
    with pytest.raises(LocalProtocolError, match="drain_delay must be at most shutdown_timeout, 3, not 4"):
        ServerOptions(drain_delay=4, shutdown_timeout=3)
