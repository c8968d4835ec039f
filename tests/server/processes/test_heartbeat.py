"""Heartbeats and handover, without processes: what counts as silence, and who serves whom. See `test_stuck_workers`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import anyio
import anyio.lowlevel
import pytest
from anyio.from_thread import start_blocking_portal

from streamcodec.server import Server, open_listener
from streamcodec.server.processes.heartbeat import BEAT_SECONDS, Attention, Heartbeat, beat, beat_seconds
from streamcodec.server.sockets.handover import WorkerListener, is_listening, receive, received, send
from streamcodec.service import Service
from tests.server.models import models
from tests.server.wire import GET_LIVE, Wire
from tests.waiting import until


class Clock:
    """A machine's time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with ExitStack() as stack:
        ours, theirs = map(stack.enter_context, socket.socketpair())
        yield ours, theirs


def _look(attention: Attention, clock: Clock, seconds: float, *, steps: int = 1) -> None:
    for _ in range(steps):
        clock.now += seconds
        attention.look()


# Silence


def test_silence_is_the_time_since_the_last_beat(clock: Clock) -> None:
    attention = Attention(0.5, clock)
    heartbeat = Heartbeat(attention, 0.5)
    _look(attention, clock, 0.5, steps=4)
    assert heartbeat.silence == 2.0
    heartbeat.hear(b"")
    assert heartbeat.silence == 2.0
    heartbeat.hear(b"++")
    assert heartbeat.silence == 0.0


def test_a_worker_is_in_doubt_after_some_beats(clock: Clock) -> None:
    attention = Attention(0.5, clock)
    heartbeat = Heartbeat(attention, 0.5)
    doubts = []
    for said in (b"", b"", b"", b"+"):
        _look(attention, clock, 0.5)
        heartbeat.hear(said)
        doubts.append(heartbeat.is_doubtful)
    assert doubts == [False, False, True, False]


@pytest.mark.parametrize("gap", [30.0, 86400.0])
def test_time_in_which_nobody_listened_is_no_silence(gap: float, clock: Clock) -> None:
    """A machine that slept for a night condemns nobody."""
    attention = Attention(0.5, clock)
    heartbeats = [Heartbeat(attention, 0.5) for _ in range(3)]
    _look(attention, clock, gap)
    assert [heartbeat.silence for heartbeat in heartbeats] == [1.0, 1.0, 1.0]


def test_a_process_that_never_runs_in_time_still_notices(clock: Clock) -> None:
    attention = Attention(0.5, clock)
    heartbeat = Heartbeat(attention, 0.5)
    _look(attention, clock, 10.0, steps=31)
    assert heartbeat.silence > 30.0


def test_a_worker_that_begins_later_has_been_heard(clock: Clock) -> None:
    attention = Attention(0.5, clock)
    _look(attention, clock, 0.5, steps=100)
    assert Heartbeat(attention, 0.5).silence == 0.0


def test_short_limits_have_several_beats() -> None:
    assert beat_seconds(0) == beat_seconds(30.0) == BEAT_SECONDS
    assert beat_seconds(0.2) == 0.05


# Beats


def test_a_loop_says_that_it_turns_and_whether_it_takes_connections(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    is_stopping = False

    async def run() -> None:
        nonlocal is_stopping
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat, theirs, 0.001, lambda: not is_stopping)
            said = b""
            while not said.endswith(b"-"):
                await anyio.wait_readable(ours)
                said += ours.recv(100)
                is_stopping = len(said) > 3
            tasks.cancel_scope.cancel()
            assert said.strip(b"-") == b"+" * said.count(b"+"), "no change back"
            assert len(said.strip(b"-")) > 3

    anyio.run(run)


def test_a_loop_goes_on_if_nobody_listens(pair: tuple[socket.socket, socket.socket]) -> None:
    """The channel is full, and then it is closed."""
    ours, theirs = pair
    beats = 0

    def takes() -> bool:
        nonlocal beats
        beats += 1
        return True

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat, theirs, 0.0, takes)
            while beats < 2000:
                await anyio.lowlevel.checkpoint()
            ours.close()
            while beats < 2100:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    anyio.run(run)


def test_what_a_worker_says_last_counts(clock: Clock) -> None:
    heartbeat = Heartbeat(Attention(0.5, clock), 0.5)
    found = [heartbeat.takes_connections]
    for said in (b"++-", b"", b"-+"):
        heartbeat.hear(said)
        found.append(heartbeat.takes_connections)
    assert found == [True, False, False, True]


# Listeners on their way


def test_a_listener_is_sent_with_who_waits_there(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    with open_listener("127.0.0.1", 0) as listener, Wire(listener.getsockname()) as wire:
        assert send(ours, listener)
        ours.close()
        (other,) = received(theirs)
        assert isinstance(other, socket.socket)
        with other:
            listener.close()
            sock, _ = other.accept()
            with sock:
                wire.send(b"x")
                assert sock.recv(1) == b"x"


def test_a_word_comes_without_a_listener(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.send(b"++")
    assert receive(theirs, 100) == (b"++", [])


def test_a_listener_is_not_sent_to_who_has_gone(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    with open_listener("127.0.0.1", 0) as listener:
        assert not send(ours, listener)


def test_a_worker_that_closes_its_listener_closes_it_for_all() -> None:
    worker = WorkerListener(fileno=open_listener("127.0.0.1", 0).detach())
    with worker.dup() as other:
        before = is_listening(other)
        worker.close()
        assert [before, is_listening(other)] == [True, False]
        with pytest.raises(ConnectionRefusedError):
            Wire(other.getsockname())


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_who_waits_at_another_listener_is_served(backend: str) -> None:
    """More than are accepted in one turn."""
    settings = {"use_uvloop": True} if backend == "uvloop" else None
    with (
        start_blocking_portal("asyncio" if settings else backend, settings) as portal,
        open_listener("127.0.0.1", 0) as other,
        ExitStack() as stack,
    ):
        server = portal.call(Server, Service(models()))
        own = open_listener("127.0.0.1", 0)
        address = own.getsockname()
        serving = portal.start_task_soon(server.serve, own)
        with Wire(address) as first:
            assert first.send(GET_LIVE).response().status == 200
        wires = [stack.enter_context(Wire(other.getsockname())) for _ in range(150)]
        portal.call(server.accept_waiting, other.dup())
        for wire in wires:
            assert wire.send(GET_LIVE).response().status == 200
        assert is_listening(other), "who gave a reference keeps its own"
        portal.call(server.stop)
        serving.result()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_listener_that_its_worker_has_closed_is_given_up(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its worker was told to stop while the reference was on its way."""
    with start_blocking_portal(backend) as portal:
        server = portal.call(Server, Service(models()))
        own = open_listener("127.0.0.1", 0)
        address = own.getsockname()
        serving = portal.start_task_soon(server.serve, own)
        with Wire(address) as wire:
            assert wire.send(GET_LIVE).response().status == 200
        worker = WorkerListener(fileno=open_listener("127.0.0.1", 0).detach())
        other = worker.dup()
        worker.close()
        portal.call(server.accept_waiting, other)
        until(lambda: other.fileno() == -1)
        portal.call(server.stop)
        serving.result()
    assert not caplog.records


def test_a_server_that_does_not_serve_closes_what_it_is_given() -> None:
    with open_listener("127.0.0.1", 0) as listener:
        Server(Service(models())).accept_waiting(listener)
        assert listener.fileno() == -1
