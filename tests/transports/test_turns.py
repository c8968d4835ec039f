"""Turns: long work is done piece by piece, in one lane of the event loop, and others have their turn in between."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from io import BytesIO
from itertools import count, repeat
from typing import Any

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    ErrorCode,
    RemoteProtocolError,
    Rows,
    Tensor,
    TensorReceived,
    encode_request,
    request_decoder,
)
from streamcodec.http import ClientConnection, RequestHead, ResponseHead, ServerConnection
from streamcodec.transports import aio, files, sync, turns
from streamcodec.transports.duplex import AsyncDuplex, Duplex
from streamcodec.transports.protocol import EventProtocol
from tests.transports.messages import Array
from tests.transports.test_aio import Pair, Run, pair, run

__all__ = ["pair", "run"]  # fixtures

EMPTY = encode_request([Tensor(name=f"t{index}", array=np.empty(0)) for index in range(200)])
BODY = b"".join(EMPTY.buffers)


def paced() -> Any:  # noqa: ANN401 - its methods are replaced
    """Make a decoder that needs turns for what `BODY` brings."""
    return request_decoder(header_length=EMPTY.header_length, body_length=len(BODY), paced=True)


def have_it_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let so much time pass with each look at a clock, for the real one has its own speed on each machine."""
    clock = count()
    for name in ("_now", "perf_counter"):
        monkeypatch.setattr(turns, name, lambda: next(clock) * seconds)


class Work:
    """A source with so many pieces of work."""

    def __init__(self, count: int, do: Callable[[], None] = lambda: None, *, inflates: bool = False) -> None:
        self.left = count
        self.inflates = inflates
        self.threads: set[int] = set()
        self._do = do

    def work(self) -> bool:
        self.threads.add(threading.get_ident())
        self._do()
        self.left -= 1
        return self.left > 0


def test_others_have_their_turn_between_two_pieces_whoever_they_are_for(run: Run) -> None:
    pieces: list[str] = []

    async def main() -> None:
        async def work(name: str) -> None:
            source = Work(20, lambda: pieces.append(name))
            while source.left:
                await turns.work(source)

        async def tick() -> None:
            while len(pieces) - pieces.count("-") < 80:
                pieces.append("-")
                await checkpoint()

        async with anyio.create_task_group() as tasks:
            for name in "abcd":
                tasks.start_soon(work, name)
            tasks.start_soon(tick)

    run(main)
    text = "".join(pieces)
    assert all(len(between) <= 1 for between in text.split("-"))
    rounds = text.replace("-", "")
    assert all(sorted(rounds[start : start + 4]) == [*"abcd"] for start in range(0, 76, 4))


def test_after_a_long_piece_others_have_several_turns(run: Run) -> None:
    """So that a new connection, which needs some turns, waits for one such piece and not for one a turn."""
    ticks: list[int] = []

    def burn() -> None:
        ticks.append(0)
        end = time.perf_counter() + 0.004
        while time.perf_counter() < end:
            pass

    async def main() -> None:
        async def tick() -> None:
            while True:
                if ticks:
                    ticks[-1] += 1
                await checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            source = Work(10, burn)
            while source.left:
                await turns.work(source)
            tasks.cancel_scope.cancel()

    run(main)
    assert min(ticks) >= 5  # on trio the order within a turn is chance


class Endless:
    """A source that always has another event, or another read; it counts them."""

    def __init__(self, *, is_urgent: bool = False, is_light: bool = False, needs_data: bool = False) -> None:
        self.is_urgent = is_urgent
        self.is_light = is_light
        self.events = 0
        self._needs_data = needs_data

    def next_event(self) -> Any:  # noqa: ANN401 - an event, or none
        self.events += 1
        return NEED_DATA if self._needs_data and self.events % 2 else "event"

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:  # noqa: ARG002 - the signature of get_buffer
        return [memoryview(bytearray(1))]

    def buffer_updated(self, nbytes: int) -> None:
        """Take it."""


async def _in_a_turn(go_on: Callable[[], Any], source: Endless, turns_made: int = 200) -> int:
    """Have many calls made one after the other; return how many events were taken in one turn at most."""
    most = 0
    turns.of_loop()  # else, the turns of another loop would be asked first, whose clock was another one

    async def call() -> None:
        while True:
            await go_on()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        for _ in range(turns_made):
            before = source.events
            await checkpoint()
            most = max(most, source.events - before)
        tasks.cancel_scope.cancel()
    return most


@pytest.mark.parametrize("needs_data", [False, True])
def test_calls_that_never_wait_leave_others_their_turn(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch, needs_data: bool
) -> None:
    """However many calls there are: what counts is not local to one."""
    have_it_pass(monkeypatch, seconds=0.0001)
    left, right = pair
    left.send(bytes(8192))

    async def main() -> None:
        source = Endless(needs_data=needs_data)
        source.receive_eof = lambda: None  # type: ignore[attr-defined]
        most = await _in_a_turn(lambda: aio.next_event(right, source), source)  # type: ignore[arg-type]
        assert 0 < most <= 2 * 50 + 2  # on trio the order within a turn is chance
        assert source.events > most

    run(main)


@pytest.mark.parametrize("kind", ["one by one", "awaited", "rows", "at once"])
def test_sends_that_never_wait_leave_others_their_turn(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    have_it_pass(monkeypatch, seconds=0.0001)
    sent = Endless()
    monkeypatch.setattr(aio, "send_some", lambda *_: min(sent.events, 1) and bool(sent.next_event()))

    async def awaited() -> AsyncIterator[Any]:
        while True:
            yield np.zeros(1, np.uint8) if kind == "rows" else b"a"

    parts: Any = {
        "one by one": repeat(b"a"),
        "awaited": awaited(),
        "rows": [Rows("UINT8", (1 << 40,), awaited())],
        "at once": [b"a"] * (1 << 14),
    }[kind]

    async def main() -> None:
        sent.next_event()
        assert 0 < await _in_a_turn(lambda: aio.send(pair[0], parts), sent) <= 2 * 50 + 2

    run(main)


def test_who_begins_anew_goes_behind_those_who_wait(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only a few are let through in one turn, but for those who are urgent."""
    come: list[int] = []
    order: list[int] = []
    have_it_pass(monkeypatch, seconds=0.0)

    async def main() -> None:
        shared = turns.of_loop()

        async def pass_through(number: int) -> None:
            come.append(number)
            await turns.wait()
            order.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(pass_through, number)
            while not order:
                await checkpoint()
            assert turns.is_crowded(Endless())
            assert not turns.is_crowded(Endless(is_urgent=True))
            assert not turns.is_crowded(Endless(is_light=True))
            assert not shared.is_over()
            while len(order) < 100:
                before = len(order)
                await turns.wait(Endless(is_urgent=True))
                assert len(order) - before <= 16
        assert not turns.is_crowded(Endless())
        for start in range(0, 100, 8):  # on trio the order of those who pass together is chance
            assert set(order[: start + 8]) <= set(come[: start + 24])

    run(main)


def test_a_turn_has_so_much_time_and_as_much_again_for_what_is_urgent(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    for name in ("_now", "perf_counter"):
        monkeypatch.setattr(turns, name, lambda: clock[0])
    urgent, other, large = Endless(is_urgent=True), Endless(), turns.LARGE

    async def main() -> None:
        await turns.wait()
        found = []
        scale = turn_seconds() / 0.002
        for now in (0.0, 0.0019, 0.0021, 0.0039, 0.0041):
            clock[0] = now * scale
            found.append((turns.is_over(urgent), turns.is_over(other)))
        assert found == [(False, False), (False, False), (False, True), (False, True), (True, True)]
        assert turns.is_over(large)
        assert turns.must_wait(other)
        assert not turns.must_wait(Endless(is_light=True))
        await turns.wait(other)
        assert not turns.is_over(other)
        clock[0] += 0.003 * scale
        with anyio.CancelScope() as scope:
            scope.cancel()
            await turns.wait(other)
        assert not turns.is_over(other), "who leaves has let others run, too"
        clock[0] += 0.001 * scale
        assert not turns.is_over()
        await checkpoint()
        await checkpoint()
        clock[0] += 0.0015 * scale  # asyncio has told by then that another turn has begun
        assert turns.is_over() is is_trio()

    run(main)


def turn_seconds() -> float:
    """Return how long a turn is: longer on trio, shorter in a round as on a busy machine."""
    return turns.of_loop()._most  # noqa: SLF001 - nobody else wants to know


def is_trio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def test_callbacks_that_have_waited_share_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, order = [0.0], list[str]()
    for name in ("_now", "perf_counter"):
        monkeypatch.setattr(turns, name, lambda: clock[0])

    async def main() -> None:
        shared = turns.of_loop()

        def catch_up(name: str) -> None:
            order.append(name)
            clock[0] += 0.0006
            if order.count(name) < 3:
                shared.later(lambda: catch_up(name))

        for name in "abc":
            shared.later(lambda name=name: catch_up(name))  # type: ignore[misc] # bound by its default
        while shared.behind:
            before = len(order)
            await asyncio.sleep(0)
            assert len(order) <= before + 2

    asyncio.run(main())
    assert order == [*"abcabcabc"]


@pytest.mark.parametrize("has_small", [False, True])
def test_large_messages_have_a_part_of_a_turn_beside_small_ones(
    run: Run, monkeypatch: pytest.MonkeyPatch, has_small: bool
) -> None:
    clock = [0.0]
    for name in ("_now", "perf_counter"):
        monkeypatch.setattr(turns, name, lambda: clock[0])

    async def main() -> None:
        await turns.wait()
        turns.of_loop().small += has_small
        found = []
        scale = turn_seconds() / 0.002 * (4 if is_trio() or not has_small else 1)  # on trio they have all of it
        for now in (0.0, 0.0004, 0.0006):
            clock[0] = now * scale
            found.append(turns.is_over(turns.LARGE))
        assert found == [False, False, True]
        await turns.wait(turns.LARGE)
        assert not turns.is_over(turns.LARGE)

    run(main)


def test_small_messages_are_expected_for_some_time_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(turns, "perf_counter", lambda: clock[0])
    shared = turns.Turns()
    assert not shared.has_small()
    for _ in range(2):
        shared.small += 1
        assert shared.has_small()
        clock[0] += 0.04
        assert shared.has_small()
    clock[0] += 0.02
    assert not shared.has_small()


def test_a_share_is_short_beside_small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = turns.Turns()
    has_small = [True]
    monkeypatch.setattr(shared, "has_small", lambda: has_small[0])
    share = turns.Share(shared)
    for _ in range(2):
        assert share.left == turns.SHARE_BYTES
        assert not share.is_over(turns.SHARE_BYTES - 1)
        assert share.left == 1
        assert share.is_over(1)
    has_small[0] = False
    assert not share.is_over(turns.LONG_SHARE_BYTES - 1)
    assert share.left == 1
    assert share.is_over(1000), "what is more is not owed"
    assert share.left == turns.LONG_SHARE_BYTES
    assert not share.is_over(turns.SHARE_BYTES)
    has_small[0] = True
    assert share.is_over(1)


def test_a_turn_that_is_noticed_to_end_is_over_when_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    for name in ("_now", "perf_counter"):
        monkeypatch.setattr(turns, name, lambda: clock[0])

    async def main() -> None:
        shared = turns.of_loop()
        for is_noticed in (False, True):
            clock[0] += 0.003
            if is_noticed:
                shared.schedule()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert shared.is_over() is not is_noticed
            await shared.wait()

    asyncio.run(main())


def test_callbacks_that_are_urgent_take_turns_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, order = [0.0], list[str]()
    for name in ("_now", "perf_counter"):
        monkeypatch.setattr(turns, name, lambda: clock[0])

    async def main() -> None:
        shared = turns.of_loop()

        def go_on(name: str) -> None:
            order.append(name)
            clock[0] += 0.0006

        for name in "abcd":
            shared.later(lambda name=name: go_on(name))  # type: ignore[misc] # bound by its default
        for name in "ABC":
            urgent = Endless(is_urgent=True)
            shared.later(lambda name=name: go_on(name), urgent)  # type: ignore[misc] # as above
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert order == [*"AaBbCcd"]


def test_a_callback_that_fails_keeps_nobody_else_behind() -> None:
    order: list[int] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: order.append(0))

        def fail() -> None:
            raise MemoryError

        turns.of_loop().later(fail)
        turns.of_loop().later(lambda: order.append(1))
        for _ in range(4):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert order == [0, 1]


def test_what_one_loop_has_left_behind_does_not_matter_to_the_next(run: Run) -> None:
    async def leave_waiting() -> None:
        turns.of_loop().later(lambda: None)
        task = asyncio.create_task(turns.wait())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave_waiting())

    async def main() -> None:
        for _ in range(3):
            await turns.wait()
            assert not turns.is_crowded(Endless())

    run(main)


def test_compressed_bodies_are_worked_on_by_one_thread_at_a_time(run: Run) -> None:
    """Some pieces at once, but not for long."""
    running: list[int] = []

    def piece() -> None:
        running.append(1)
        assert len(running) == 1
        threading.Event().wait(0.0001)
        running.pop()

    async def main() -> None:
        async def work(source: Work) -> None:
            while source.left > 0:
                before = source.left
                await turns.work(source)
                done.append(before - source.left)

        done: list[int] = []
        sources = [Work(50, piece, inflates=True) for _ in range(3)]
        async with anyio.create_task_group() as tasks:
            for source in sources:
                tasks.start_soon(work, source)
        assert all(threading.get_ident() not in source.threads for source in sources)
        assert 1 < max(done) < 30
        assert [source.left for source in sources] == [0, 0, 0]

    run(main)


def test_who_goes_leaves_no_thread_behind_that_works_for_it() -> None:
    """By the means of asyncio, which does not wait for threads."""
    entered, may_go = threading.Event(), threading.Event()

    def piece() -> None:
        entered.set()
        may_go.wait(0.05)

    async def main() -> None:
        source = Work(1000, piece, inflates=True)
        task = asyncio.create_task(turns.work(source))
        while not entered.is_set():  # noqa: ASYNC110 - a thread cannot set an event of asyncio
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = source.left
        assert left == 999
        may_go.set()
        await asyncio.sleep(0.05)
        assert source.left == left
        await turns.work(other := Work(1, inflates=True))
        assert other.left == 0

    asyncio.run(main())


def test_who_goes_before_its_turn_does_no_work(run: Run) -> None:
    async def main() -> None:
        source = Work(1)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await turns.work(source)
        assert source.left == 1
        await turns.work(source)
        assert source.left == 0

    run(main)


def test_errors_come_to_who_waits_and_the_lane_goes_on(run: Run) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        for inflates in (False, True):
            with pytest.raises(ZeroDivisionError):
                await turns.work(Work(1, fail, inflates=inflates))
            await turns.work(other := Work(1, inflates=inflates))
            assert other.left == 0

    run(main)


def test_blocking_transports_do_the_work_at_once(pair: Pair) -> None:
    left, right = pair
    right.setblocking(True)
    left.send(BODY)
    source = paced()
    assert len(events(lambda: sync.next_event(right, source))) == 200
    source = paced()
    assert len(events(lambda: files.next_event(BytesIO(BODY), source))) == 200
    left.send(BODY)
    duplex = Duplex(right, paced(), [b"sent"])
    assert len(events(duplex.next_event)) == 200
    assert left.recv(10) == b"sent"


def events(next_event: Callable[[], object]) -> list[object]:
    """Return the tensors of a message."""
    received = []
    while not isinstance(event := next_event(), EndOfMessage):
        received.append(event)
    return received[1:]


async def collect(source: Any) -> dict[str, Array]:  # noqa: ANN401 - whatever has `next_event`
    arrays = {}
    while not isinstance(event := await source.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            arrays[event.spec.name] = event.array
    return arrays


class _Reader:
    """A socket and a source, with a time limit."""

    def __init__(self, sock: socket.socket, source: Any, timeout: float | None = None) -> None:  # noqa: ANN401
        self._socket, self._source, self._timeout = sock, source, timeout

    async def next_event(self) -> object:
        return await aio.next_event(self._socket, self._source, timeout=self._timeout)


def test_an_asynchronous_socket(run: Run, pair: Pair) -> None:
    left, right = pair
    left.send(BODY)

    async def main() -> None:
        assert len(await collect(_Reader(right, paced()))) == 200

    run(main)


def test_the_time_of_work_is_not_the_peers(run: Run, pair: Pair) -> None:
    """But from then on, its time runs again."""
    left, right = pair
    left.send(BODY[:-1])

    async def main() -> None:
        source = _Slow(3)
        with pytest.raises(TimeoutError):
            await aio.next_event(right, source, timeout=0.03)
        assert source.left == 0
        left.send(BODY[-1:])
        assert await aio.next_event(right, source, timeout=0.03) == "event"

    run(main)


class _Slow:
    """A source whose work takes long, in the view of its time limit; then it reads `BODY`."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._received = 0

    def next_event(self) -> Any:  # noqa: ANN401 - an event, or none
        if self.left:
            return NEED_TURN
        return "event" if self._received == len(BODY) else NEED_DATA

    def work(self) -> None:
        self.left -= 1
        threading.Event().wait(0.05)

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        return memoryview(bytearray(1 << 16))

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        return [self.get_buffer(sizehint)]

    def buffer_updated(self, nbytes: int) -> None:
        self._received += nbytes

    def receive_eof(self) -> None:
        raise AssertionError


def _zeros(_: int) -> Array:
    return np.zeros(1 << 16, np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("is_sending", [False, True])
def test_both_directions_at_once(run: Run, pair: Pair, is_sending: bool) -> None:
    left, right = pair
    left.send(BODY[:-1])
    parts = [Rows("UINT8", (1 << 40,), map(_zeros, count()))] if is_sending else []

    async def main() -> None:
        source = _Slow(3)
        duplex: AsyncDuplex[str] = AsyncDuplex(right, source, parts, read_timeout=0.1, write_timeout=0.1)
        async with duplex.sending():
            with anyio.move_on_after(0.05):  # what has come is not lost
                await duplex.next_event()
            left.send(BODY[-1:])
            assert await duplex.next_event() == "event"
            duplex.stop_sending()

    run(main)


def gzipped() -> tuple[ServerConnection, bytes]:
    """Make a connection, and a compressed request that it needs turns for."""
    body = gzip.compress(BODY, mtime=0)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    return ServerConnection(paced=True), head + body


def test_a_compressed_request_over_a_socket(run: Run, pair: Pair) -> None:
    left, right = pair
    source, request = gzipped()
    left.send(request)

    async def main() -> None:
        reader = _Reader(right, source)
        assert isinstance(await reader.next_event(), RequestHead)
        source.receive_body(paced())
        assert len(await collect(reader)) == 200

    run(main)


def test_a_compressed_request_over_a_protocol(pair: Pair) -> None:
    left, right = pair
    source, request = gzipped()

    async def main() -> None:
        protocol: EventProtocol[Any] = EventProtocol(source)
        await asyncio.get_running_loop().create_connection(lambda: protocol, sock=right)
        left.send(request)
        assert isinstance(await protocol.next_event(), RequestHead)
        source.receive_body(paced())
        with pytest.raises(TimeoutError):  # which loses nothing
            async with asyncio.timeout(0):
                await collect(protocol)
        assert "t199" in await collect(protocol)
        protocol.transport.abort()

    asyncio.run(main())


def test_a_compressed_answer_that_is_damaged(run: Run, pair: Pair) -> None:
    left, right = pair
    body = gzip.compress(BODY, mtime=0)[:-8] + bytes(8)
    left.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async def main() -> None:
        source = ClientConnection(paced=True)
        parts = source.send_request("GET", "/", [("Host", "x")])
        duplex: AsyncDuplex[Any] = AsyncDuplex(right, source, parts, read_timeout=60, write_timeout=60)
        async with duplex.sending():
            assert isinstance(await duplex.next_event(), ResponseHead)
            source.receive_body(paced())
            with pytest.raises(RemoteProtocolError) as caught:
                await collect(duplex)
        assert caught.value.code == ErrorCode.INVALID_COMPRESSION

    run(main)


def test_the_system_is_asked_no_more_when_a_turn_has_had_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask for the time of the processor takes longer than most of what is done for a small request."""
    asked: list[str] = []

    def ask() -> float:
        asked.append("")
        return 1e9

    async def main() -> None:
        here = turns.of_loop()
        await asyncio.sleep(0)
        monkeypatch.setattr(turns, "perf_counter", lambda: 1e9)
        monkeypatch.setattr(turns, "_now", ask)
        assert here.is_over()
        assert all(here.is_over() for _ in range(100))
        assert len(asked) == 1
        called: list[int] = []
        for number in range(100):
            here.later(partial(called.append, number))
        await asyncio.sleep(0)
        assert called == [*range(100)]
        assert len(asked) == 2, "as the turn begins, and not for each callback"

    asyncio.run(main())
