"""Channels by themselves: one client's turn, the wait for a slow one, and the end, over a transport that notes it all.

The event loop is real, its time is not waited for where that can be avoided.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import pairwise
from typing import Any, cast

import anyio
import numpy as np
import pytest

from streamcodec import encode_request
from streamcodec.engine.events import NEED_DATA
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.runtime.models.calls import ModelCaller
from streamcodec.runtime.models.workers import Workers
from streamcodec.runtime.timeouts import Phase, ReadTimeout, WriteTimeout
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.channels import Outbox, ProtocolChannel
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.server.connection.socketchannel import SocketChannel
from streamcodec.server.processes.loops import HAS_UVLOOP, new_loop
from streamcodec.service import Inference, Model, ModelRegistry, Reply, Service
from streamcodec.transports import turns
from streamcodec.transports.source import READ_BYTES
from tests.server.models import models
from tests.server.wire import GET_LIVE, head, infer_request

ANSWER = b"HTTP/1.1 200 "
LONG = 60.0
"""Seconds that nothing here takes."""


@pytest.fixture(autouse=True)
def _turns_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a turn may be over after any step. Tests of such turns say so themselves."""
    monkeypatch.setattr(turns, "_now", lambda: 0.0)


class Transport(asyncio.Transport):
    """Takes all, or keeps it as if the client took nothing; notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.writes = 0
        self.kept = 0
        self.is_read = False
        self.has_closed = False
        self.calls: list[str] = []
        self.socket: socket.socket | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as in the base class
        return self.socket if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep none."""

    def get_write_buffer_size(self) -> int:
        return self.kept

    def is_closing(self) -> bool:
        return self.has_closed

    def write(self, data: Any) -> None:  # noqa: ANN401 - as in the base class
        assert not self.has_closed
        self.written += bytes(data)
        self.writes += 1

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.has_closed
        self.is_read = True

    def write_eof(self) -> None:
        self.calls.append("end")

    def abort(self) -> None:
        self.calls.append("abort")


class Client:
    """What sends requests to a channel, which waits for them."""

    def __init__(
        self,
        options: ServerOptions | None = None,
        *,
        registry: ModelRegistry | None = None,
        model_timeout: float = 0.5,
    ) -> None:
        """With less than a second for its model, a request is waited for by the task, which is most of the tests."""
        options = options or ServerOptions()
        service = Service(registry or models())
        self.outbox = Outbox()
        self.session = Session(service, RequestCache(service), Admission(options))
        self.taking = WriteTimeout(options)
        caller = ModelCaller(Workers(1, 1), self.session.reservation, model_timeout)
        self.channel = ProtocolChannel(self.session, self.taking, self.outbox, options.max_pipelined_bytes, caller)
        self.transport = Transport()
        self.channel.connection_made(self.transport)

    async def waited_for(self) -> asyncio.Task[Step]:
        """Have the channel wait."""
        waiting = asyncio.create_task(self.channel.next_event(self.session, lambda _: LONG))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert self.transport.is_read
        return waiting

    def send(self, data: bytes) -> None:
        """Let data come in one turn, all of which is read."""
        assert self.bring(data) == len(data)

    def bring(self, data: bytes) -> int:
        """Let data come in one turn; return how much of it is read."""
        taken = 0
        while taken < len(data) and self.transport.is_read:
            buffer = self.channel.get_buffer(-1)
            size = min(len(buffer), len(data) - taken)
            buffer[:size] = data[taken : taken + size]
            self.channel.buffer_updated(size)
            taken += size
        return taken

    async def send_all(self, data: bytes) -> list[int]:
        """Let data come in as many turns as it takes; return how much of it is read in each."""
        shares: list[int] = []
        while sum(shares) < len(data):
            shares.append(self.bring(data[sum(shares) :]))
            await asyncio.sleep(0)
        return shares

    @property
    def answers(self) -> int:
        """How many have been sent."""
        self.outbox.flush()
        return self.transport.written.count(ANSWER)


def _on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(test())


async def _ended(waiting: asyncio.Task[Step]) -> None:
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def _until(holds: Callable[[], bool]) -> None:
    """Wait for a condition: on a busy machine a turn may be over sooner, and what comes then is left to a later one."""
    while not holds():  # noqa: ASYNC110 - nobody tells it
        await asyncio.sleep(0.001)


# One client's turn


@_on_a_loop
async def test_in_each_turn_sixteen_small_requests_of_a_client_are_answered_and_none_is_forgotten() -> None:
    client = Client()
    waiting = await client.waited_for()
    client.send(GET_LIVE * 100)
    sent = [client.answers]
    while turns.of_loop().behind:
        assert not client.transport.is_read, "nothing more is read before all that has come is answered"
        await asyncio.sleep(0)
        sent.append(client.answers)
    assert sent == [16, 32, 48, 64, 80, 96, 100]
    assert client.transport.is_read
    await _ended(waiting)


@_on_a_loop
async def test_exactly_as_many_as_are_answered_in_a_turn_leave_nothing_for_the_next() -> None:
    client = Client()
    waiting = await client.waited_for()
    client.send(GET_LIVE * 16)
    assert (client.answers, len(turns.of_loop().behind), client.transport.is_read) == (16, 0, True)
    await _ended(waiting)


@_on_a_loop
async def test_where_others_are_behind_a_client_is_answered_once_before_their_turn() -> None:
    client, other = Client(), list[int]()
    waiting = await client.waited_for()
    turns.of_loop().later(lambda: other.append(client.answers))
    client.send(GET_LIVE * 20)
    assert client.answers == 1
    await asyncio.sleep(0)
    assert other == [1]
    for _ in range(5):
        await asyncio.sleep(0)
    assert client.answers == 20
    await _ended(waiting)


@_on_a_loop
async def test_who_has_gone_while_it_was_behind_is_not_read_again() -> None:
    client = Client()
    waiting = await client.waited_for()
    client.send(GET_LIVE * 17)
    client.transport.has_closed = True
    await asyncio.sleep(0)  # another turn: reading would fail
    assert not turns.of_loop().behind
    await _ended(waiting)


@_on_a_loop
async def test_who_is_not_waited_for_any_more_is_not_answered_behind_its_back() -> None:
    client = Client()
    waiting = await client.waited_for()
    client.send(GET_LIVE * 100)
    await _ended(waiting)
    before = client.answers
    for _ in range(5):
        await asyncio.sleep(0)
    assert client.answers == before
    assert not client.transport.is_read


@_on_a_loop
async def test_a_request_that_takes_long_ends_the_wait_behind_the_answers_to_those_before_it() -> None:
    client = Client()
    waiting = await client.waited_for()
    client.send(GET_LIVE * 3 + head("/v2/models/nobody", method="PUT") + head("/v2/models/nobody/infer"))
    assert not client.transport.is_read
    assert await waiting is Step.SEND
    assert client.answers == 3
    assert client.session.outgoing, "it waits for whoever sends"


@_on_a_loop
async def test_a_client_whose_answers_wait_is_not_answered_more() -> None:
    client = Client(ServerOptions(max_pipelined_bytes=1))
    waiting = await client.waited_for()
    client.channel.pause_writing()
    client.send(GET_LIVE * 5)
    assert await waiting is Step.SEND
    assert client.answers == 0
    await asyncio.sleep(0)


@_on_a_loop
async def test_a_small_request_in_two_pieces_is_answered_like_a_whole_one() -> None:
    client = Client()
    waiting = await client.waited_for()
    client.send(request := infer_request())
    for cut in (len(request) - 1, request.index(b"\r\n\r\n") + 4, 1):
        client.send(request[:cut])
        assert client.session.phase in {Phase.HEAD, Phase.IDLE}
        client.send(request[cut:])
        assert client.session.is_idle
    assert client.answers == 4
    assert client.session.request_count == 4
    await _ended(waiting)


@_on_a_loop
async def test_a_small_request_whose_rest_does_not_come_begins_without_it() -> None:
    client = Client()
    waiting = await client.waited_for()
    client.send(request := infer_request())
    client.send(request[:-2])
    assert (client.session.request_count, client.session.is_spare) == (1, False)
    await _until(lambda: client.session.request_count == 2)
    assert client.session.phase is Phase.BODY
    await client.send_all(request[-2:-1])
    assert client.answers == 1
    await client.send_all(request[-1:])
    await _until(lambda: client.answers == 2)
    await _ended(waiting)


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_small_request_that_ends_early_is_refused_at_once(pieces: int) -> None:
    async def test() -> None:
        client = Client()
        waiting = await client.waited_for()
        client.send(request := infer_request())
        client.send(request[:-8] if pieces == 1 else request[:-9])
        client.send(request[-9:-8] if pieces == 2 else b"")
        client.channel.eof_received()
        assert await waiting is Step.SEND
        assert b"".join(map(bytes, cast("list[bytes]", client.session.outgoing))).startswith(b"HTTP/1.1 400 ")

    asyncio.run(test())


@pytest.mark.parametrize("excess", [0, 1])
def test_a_request_begins_at_once_if_one_read_cannot_bring_all_of_it(excess: int) -> None:
    async def test() -> None:
        client = Client()
        waiting = await client.waited_for()
        missing = SCRATCH_BYTES - len(infer_request("identity", "X-A: ", count=18_000)) + excess
        client.send(infer_request("identity", "X-A: " + "a" * missing, count=18_000)[:-1])
        assert client.session.request_count == excess
        await _ended(waiting)

    asyncio.run(test())


@_on_a_loop
async def test_so_many_bytes_of_answers_wait_for_one_client_and_one_answer_more() -> None:
    measured = Client()
    waiting = await measured.waited_for()
    measured.send(GET_LIVE * 3)
    assert measured.answers == 3
    await _ended(waiting)
    size = len(measured.transport.written) // 3
    assert measured.channel.given == 3 * size

    client = Client(ServerOptions(max_pipelined_bytes=5 * size))
    waiting = await client.waited_for()
    client.send(GET_LIVE * 2)  # two reads in one turn of the event loop
    client.send(GET_LIVE * 10)
    assert client.outbox.nbytes(client.transport) == 5 * size
    assert await waiting is Step.SEND
    assert b"".join(cast("list[bytes]", client.session.outgoing)).count(ANSWER) == 1


@_on_a_loop
async def test_a_large_answer_ends_the_wait_and_is_sent_by_whoever_waits() -> None:
    registry = models()
    registry.add(Model(name="long", predict=lambda _: {"y": np.zeros(100_000, np.uint8)}, is_inline=True))
    client = Client(registry=registry)
    for _ in range(2):  # the second time it is known
        waiting = await client.waited_for()
        client.send(infer_request("long"))
        assert await waiting is Step.SEND
        assert (client.answers, client.transport.is_read) == (0, False)
        assert len(b"".join(cast("list[bytes]", client.session.outgoing))) > 100_000
        client.session.outgoing = []
        client.session.has_sent()


@_on_a_loop
async def test_where_there_is_no_memory_to_answer_the_connection_is_closed() -> None:
    def fail() -> bool:
        raise MemoryError

    client = Client()
    waiting = await client.waited_for()
    client.session.answer_at_once = fail  # type: ignore[method-assign] # as where memory is short
    client.send(GET_LIVE)
    assert await waiting is Step.CLOSE
    assert not client.transport.is_read


@_on_a_loop
async def test_what_was_answered_before_is_sent_before() -> None:
    client = Client()
    waiting = await client.waited_for()
    client.send(GET_LIVE)
    await client.channel.send([b"next"])
    assert client.transport.written.startswith(ANSWER)
    assert client.transport.written.endswith(b"next")
    assert client.channel.given == len(client.transport.written)
    client.send(GET_LIVE)
    await client.channel.flush()
    assert client.transport.written.count(ANSWER) == 2
    await _ended(waiting)


# Waiting


@_on_a_loop
async def test_a_wait_is_looked_at_as_often_as_it_asks_for_and_ends_when_it_has_been_enough() -> None:
    client, times = Client(), list[float]()

    def look(now: float) -> float:
        times.append(now)
        if len(times) == 4:
            raise TimeoutError
        return 0.01

    with pytest.raises(TimeoutError):
        await client.channel.next_event(client.session, look)
    assert times == sorted(times)
    assert times[-1] - times[0] >= 0.029
    assert abs(asyncio.get_running_loop().time() - times[-1]) < LONG, "the loop's own clock"


@_on_a_loop
async def test_an_answer_of_moderate_size_is_sent_while_its_client_is_waited_for() -> None:
    client = Client(registry=_quick())
    waiting = await client.waited_for()
    message = _request()
    for count in (1, 2):
        client.send(message[:1000])
        await client.send_all(message[1000:])
        if count == 1:  # not yet known to be quick
            assert await waiting is Step.CALL
            assert client.session.inference is not None
            client.session.answer(_called(client.session.inference))
            await client.channel.send(client.session.outgoing)
            client.session.outgoing = []
            client.session.has_sent()
            waiting = await client.waited_for()
        assert client.answers == count
        assert not waiting.done()
    assert client.channel.given == len(client.transport.written)
    await _ended(waiting)


class Windows:
    """A source whose events have all come with the first bytes."""

    def __init__(self) -> None:
        self.coming: list[int] = []
        self.connection = self

    def next_event(self) -> Any:  # noqa: ANN401 - of any kind
        return self.coming.pop(0) if self.coming else NEED_DATA


@_on_a_loop
async def test_an_event_that_waits_for_its_task_is_not_replaced_by_the_next_one() -> None:
    client, source = Client(), Windows()
    looked_at: Any = source
    wait = partial(client.channel.next_event, looked_at, lambda _: LONG)
    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    source.coming = [1, 2, 3]
    client.channel.received()
    client.channel.received()  # a turn that was put off, before the task has its own
    events = [await waiting]
    while source.coming:
        events.append(await wait())
    assert events == [1, 2, 3]


@_on_a_loop
async def test_nothing_is_read_for_a_source_that_has_failed_in_a_later_turn() -> None:
    """It has no memory for more bytes, and uvloop would ask for some before the waiting task raises the error."""

    def fail() -> None:
        raise ValueError("as it is meant to")

    client, source = Client(), Windows()
    looked_at: Any = source
    waiting = asyncio.create_task(client.channel.next_event(looked_at, lambda _: LONG))
    await asyncio.sleep(0)
    client.channel._fall_behind()  # noqa: SLF001 - as when the turn is over
    source.next_event = fail  # type: ignore[method-assign] # as for bytes that break a rule
    await asyncio.sleep(0)
    assert not turns.of_loop().behind, "its turn has come"
    assert not client.transport.is_read
    with pytest.raises(ValueError, match="as it is meant to"):
        await waiting


@_on_a_loop
async def test_if_the_system_does_not_take_all_of_it_its_memory_stays_reserved() -> None:
    client = Client(registry=_quick())
    waiting = await client.waited_for()
    await client.send_all(_request())
    assert await waiting is Step.CALL
    assert client.session.inference is not None
    client.session.answer(_called(client.session.inference))
    client.session.outgoing = []
    client.session.has_sent()
    waiting = await client.waited_for()
    client.transport.kept = 5
    await client.send_all(_request())
    client.channel.pause_writing()
    assert await waiting is Step.SEND
    assert client.session.outgoing == []
    assert client.session.reservation.nbytes > NBYTES
    sending = asyncio.create_task(client.channel.send([]))
    await asyncio.sleep(0.01)
    assert not sending.done()
    client.transport.kept = 0
    client.channel.resume_writing()
    await sending
    client.session.has_sent()
    assert client.session.reservation.nbytes == 0


@pytest.mark.parametrize("is_over", [False, True])
def test_a_large_request_is_read_by_shares_and_small_ones_come_in_between(
    monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    @_on_a_loop
    async def test() -> None:
        shared = turns.of_loop()
        monkeypatch.setattr(shared, "is_over", lambda source=None: is_over and source is turns.LARGE)
        large, small = Client(registry=_quick()), Client()
        waiting = [await large.waited_for(), await small.waited_for()]
        data, shares = _request(2 << 20), list[int]()
        shares.append(large.bring(data))  # the first read of a request brings its head
        while sum(shares) < len(data):
            assert not large.transport.is_read
            small.send(GET_LIVE)
            assert small.answers == len(shares)
            await asyncio.sleep(0)
            shares.append(large.bring(data[sum(shares) :]))
        assert await waiting[0] is Step.CALL
        if is_over:
            assert max(shares[1:]) == READ_BYTES
        else:
            assert all(0 <= share - turns.SHARE_BYTES < READ_BYTES for share in shares[1:-1])
        await _ended(waiting[1])

    test()


def test_where_no_small_requests_come_shares_are_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    @_on_a_loop
    async def test() -> None:
        monkeypatch.setattr(turns.of_loop(), "is_over", lambda _: False)
        monkeypatch.setattr(turns.of_loop(), "has_small", lambda: False)
        client = Client(registry=_quick())
        waiting = await client.waited_for()
        shares = await client.send_all(_request(9 << 20))
        assert all(0 <= share - turns.LONG_SHARE_BYTES < READ_BYTES for share in shares[1:-1])
        assert await waiting is Step.CALL

    test()


def test_of_many_large_requests_a_few_are_read_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    @_on_a_loop
    async def test() -> None:
        monkeypatch.setattr(turns.of_loop(), "is_over", lambda _: False)
        clients = [Client(registry=_quick()) for _ in range(10)]
        waiting = [await client.waited_for() for client in clients]
        data = _request(9 << 20)
        for client in clients:
            client.bring(data)
        orders = []
        for _ in range(5):
            await asyncio.sleep(0)
            orders.append([index for index, client in enumerate(clients) if client.transport.is_read])
            for index in orders[-1]:
                clients[index].bring(bytes(turns.LONG_SHARE_BYTES + 1))
        assert orders == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
        for each in waiting:
            await _ended(each)

    test()


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("has_small", [False, True])
def test_a_large_answer_is_sent_by_shares(monkeypatch: pytest.MonkeyPatch, is_over: bool, has_small: bool) -> None:
    @_on_a_loop
    async def test() -> None:
        client = Client()
        monkeypatch.setattr(turns.of_loop(), "is_over", lambda _: is_over)
        monkeypatch.setattr(turns.of_loop(), "has_small", lambda: has_small)
        sending = asyncio.create_task(client.channel.send([bytes(6 << 20)]))
        sent = [0]
        while not sending.done():
            await asyncio.sleep(0)
            sent.append(len(client.transport.written))
        assert sent[-1] == 6 << 20
        most = turns.LONG_SHARE_BYTES if not (is_over or has_small) else turns.SHARE_BYTES
        assert max(after - before for before, after in pairwise(sent)) == most

    test()


LOOPS = [asyncio.SelectorEventLoop, *([lambda: new_loop(is_uvloop=True)] if HAS_UVLOOP else [])]


@asynccontextmanager
async def _connected() -> AsyncIterator[tuple[socket.socket, Client, list[int]]]:
    """Connect a socket to a channel that waits for a request; yield the bytes of all reads, too."""
    client, reads = Client(registry=_quick()), list[int]()
    buffer_updated = client.session.buffer_updated

    def noting(nbytes: int) -> None:
        reads.append(nbytes)
        buffer_updated(nbytes)

    client.session.buffer_updated = noting
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        with socket.create_connection(listener.getsockname()) as sock:
            far, _ = listener.accept()
            far.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: client.channel, far)
            try:
                yield sock, client, reads
            finally:
                client.channel.transport.abort()
                await asyncio.sleep(0.001)
                far.close()


def _on_each_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    @pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"][: len(LOOPS)])
    def run(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(test())

    return run


@pytest.mark.skipif(not hasattr(os, "readv"), reason="Windows has no readv")
@_on_each_loop
async def test_what_has_come_of_a_large_request_is_read_in_a_few_turns() -> None:
    async with _connected() as (sock, client, reads):
        data = _request(4 << 20)
        await asyncio.to_thread(sock.sendall, data)
        turns_taken, later = 0, turns.of_loop().later

        def counting(callback: Callable[[], None], source: object = None) -> None:
            nonlocal turns_taken
            turns_taken += 1
            later(callback, source)

        turns.of_loop().later = counting  # type: ignore[method-assign] # to see how often it is asked for
        turns.of_loop().is_over = lambda _=None: False  # type: ignore[assignment, method-assign] # it may be, if busy
        turns.of_loop().has_small = lambda: False  # type: ignore[method-assign] # the client has just come
        assert await client.channel.next_event(client.session, lambda _: LONG) is Step.CALL
        assert sum(reads) == len(data)
        assert turns_taken == 1, "a share, and the rest"
        assert max(reads) > 4 * READ_BYTES


@pytest.mark.skipif(not hasattr(os, "readv"), reason="Windows has no readv")
@_on_each_loop
async def test_who_has_fallen_behind_reads_in_its_turn_although_others_have_had_the_time() -> None:
    async with _connected() as (sock, client, reads):
        data = _request(2 << 20)
        await asyncio.to_thread(sock.sendall, data)
        turns.of_loop().is_over = lambda source=None: source is turns.LARGE  # type: ignore[method-assign] # always
        turns.of_loop().has_small = lambda: True  # type: ignore[method-assign]
        assert await client.channel.next_event(client.session, lambda _: LONG) is Step.CALL
        assert sum(reads) == len(data)
        assert len(reads) > (2 << 20) / turns.SHARE_BYTES


@_on_each_loop
async def test_what_waits_for_the_rest_of_a_piece_is_seen_before_its_client_is_judged() -> None:
    """The system tells of no byte that comes after the first read."""
    async with _connected() as (sock, client, _):
        data = _request(1 << 20)
        seen: list[int] = []

        def look(_: float) -> float:
            seen.append(client.session.received)
            if len(seen) > 1:
                raise TimeoutError
            return 0.2

        waiting = asyncio.create_task(client.channel.next_event(client.session, look))
        sock.sendall(data[:300_000])
        await _until(lambda: client.session.received == 300_000)
        sock.sendall(data[300_000:300_100])
        with pytest.raises(TimeoutError):
            await waiting
        assert seen[1] == 300_100
        waiting = asyncio.create_task(client.channel.next_event(client.session, lambda _: LONG))
        sock.sendall(data[300_100:])
        assert await waiting is Step.CALL


@_on_each_loop
async def test_the_next_request_is_told_of_by_its_first_byte() -> None:
    async with _connected() as (sock, client, _):
        for _ in range(2):
            waiting = asyncio.create_task(client.channel.next_event(client.session, lambda _: LONG))
            await asyncio.to_thread(sock.sendall, _request(1 << 20))
            assert await waiting is Step.CALL
            assert client.session.inference is not None
            client.session.answer(client.session.inference.run())
            await client.channel.send(client.session.outgoing)
            client.session.outgoing = []
            client.session.has_sent()
            sock.recv(4 << 20, socket.MSG_WAITALL | socket.MSG_DONTWAIT)
        waiting = asyncio.create_task(client.channel.next_event(client.session, lambda _: LONG))
        before = client.session.received
        sock.sendall(b"P")
        await _until(lambda: client.session.received == before + 1)
        await _ended(waiting)


@_on_each_loop
async def test_a_connection_that_breaks_within_a_large_request() -> None:
    async with _connected() as (sock, client, reads):
        waiting = asyncio.create_task(client.channel.next_event(client.session, lambda _: LONG))
        sock.sendall(_request(1 << 20)[:300_000])
        await _until(lambda: sum(reads) == 300_000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(bytes(READ_BYTES))
        sock.close()
        with pytest.raises(ConnectionResetError):
            await waiting


NBYTES = 200_000


def _called(inference: Inference) -> Reply:
    """Call the model, in no time, and as if it had been called often before."""
    quickness = inference.resolved.judge(NBYTES)
    assert quickness is not None
    for _ in range(20):
        quickness.ran_in_thread(inference.arriving.offset, 0.0, 0.0, has_waited=False)
    return inference.run()


def _quick() -> ModelRegistry:
    return ModelRegistry.of([Model(name="m", predict=lambda request: dict(request.inputs), is_inline=True)])


def _request(nbytes: int = NBYTES) -> bytes:
    message = encode_request({"x": np.zeros(nbytes, np.uint8)}, parameters={"binary_data_output": True})
    fields = [f"{name}: {value}" for name, value in message.headers]
    return head("/v2/models/m/infer", *fields) + b"".join(message.buffers)


@_on_a_loop
async def test_of_a_slow_client_it_is_told_what_it_has_taken_and_what_not() -> None:
    client, taken = Client(), list[int]()
    judge = client.taking.look

    def look(now: float, nbytes: int) -> float:
        taken.append(nbytes)
        judge(now, nbytes)
        if len(taken) == 2:
            client.channel.resume_writing()
        else:
            client.transport.kept = 300
        return 0.001

    client.taking.look = look  # type: ignore[method-assign,assignment] # to see it
    client.channel.pause_writing()
    client.transport.kept = 1000
    with anyio.fail_after(LONG):
        await client.channel.send([bytes(1000)])
    assert taken == [0, 700]


@_on_a_loop
async def test_who_takes_nothing_is_given_up() -> None:
    client = Client(ServerOptions(write_timeout=0.05))
    client.channel.pause_writing()
    client.transport.kept = 10
    with anyio.fail_after(LONG), pytest.raises(TimeoutError, match="does not read"):
        await client.channel.send([bytes(10)])


@_on_a_loop
async def test_who_has_gone_is_given_up_whatever_waits() -> None:
    client = Client()
    client.channel.pause_writing()
    client.channel.connection_lost(ConnectionResetError("gone"))
    with anyio.fail_after(LONG), pytest.raises(ConnectionResetError, match="gone"):
        await client.channel.flush()


@_on_a_loop
async def test_time_in_which_nobody_waits_for_the_client_is_not_its_own() -> None:
    client = Client(ServerOptions(write_timeout=0.6, request_timeout=0.6))
    for _ in range(6):
        client.channel.pause_writing()
        asyncio.get_running_loop().call_soon(client.channel.resume_writing)
        await client.channel.send([b"x"])
        await asyncio.sleep(0.2)  # the server's own time


# The end


@_on_a_loop
async def test_a_connection_ends_once() -> None:
    client = Client()
    client.channel.end()
    assert client.transport.calls == ["end"]
    client.transport.has_closed = True
    client.channel.end()  # the client has gone already
    client.channel.close()
    assert client.transport.calls == ["end", "abort"]
    assert client.channel.has_left(None)


@pytest.mark.parametrize("kind", ["transport", "socket"])
def test_who_has_sent_all_and_ends_its_direction_has_not_left_and_who_owes_a_byte_has(kind: str) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        client = Client()
        client.transport.socket = ours
        channel = client.channel if kind == "transport" else SocketChannel(ours, client.taking)
        with ours, theirs:
            assert not channel.has_left(100)
            theirs.send(bytes(10))
            theirs.shutdown(socket.SHUT_WR)
            assert not channel.has_left(10)
            assert channel.has_left(11)
            assert not channel.has_left(None)

    asyncio.run(main())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_socket_whose_client_takes_its_answer_in_pieces_is_waited_for_each_time(backend: str) -> None:
    size = 8 << 20

    async def take(sock: socket.socket) -> None:
        left = size
        while left:
            await anyio.wait_readable(sock)
            left -= len(sock.recv(1 << 20))

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        options = ServerOptions(write_timeout=LONG, request_timeout=LONG)
        with theirs, closing(SocketChannel(ours, WriteTimeout(options))) as channel, anyio.fail_after(LONG):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take, theirs)
                await channel.send([bytes(size)])

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_socket_whose_client_takes_nothing_is_given_up_in_time(backend: str) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, closing(SocketChannel(ours, WriteTimeout(ServerOptions(write_timeout=0.1)))) as channel:
            with anyio.fail_after(LONG), pytest.raises(TimeoutError, match="does not read"):
                await channel.send([bytes(16 << 20)])
            theirs.close()
            channel.end()  # of which nobody is told any more

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_socket_is_read_for_as_long_as_it_is_looked_at(backend: str) -> None:
    service = Service(models())
    looks: list[float] = []

    def look(now: float) -> float:
        looks.append(now)
        if len(looks) == 3:
            raise TimeoutError
        return 0.01

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        session = Session(service, RequestCache(service), Admission(ServerOptions()))
        with theirs, closing(SocketChannel(ours, WriteTimeout(ServerOptions()))) as channel:
            theirs.send(GET_LIVE)
            assert await channel.next_event(session, lambda _: LONG) is Step.SEND
            session.outgoing = []
            session.has_sent()
            with anyio.fail_after(LONG), pytest.raises(TimeoutError):
                await channel.next_event(session, look)
        assert looks == sorted(looks)

    anyio.run(main, backend=backend)


@_on_a_loop
async def test_nobody_waits_for_a_client_whose_request_is_called() -> None:
    model = Model(name="m", predict=lambda request: dict(request.inputs), is_inline=False)
    client = Client(registry=ModelRegistry.of([model]))
    session = client.session
    waiting = await client.waited_for()
    client.send(_request(1000))
    assert await waiting is Step.CALL
    session.reservation._slow_looks = 99  # noqa: SLF001 - it came slowly, while others waited for its memory
    patience = ReadTimeout(ServerOptions(), session)
    with pytest.raises(TimeoutError):
        patience.look(0.0)
    session.begin_to_wait()
    for now in (0.0, 1e6, 2e6):
        assert patience.look(now) > 0


def _in_thread() -> ModelRegistry:
    return ModelRegistry.of([Model(name="m", predict=lambda request: dict(request.inputs), is_inline=False)])


@_on_a_loop
async def test_nothing_is_read_while_an_answer_waits_for_the_task_that_sends_it() -> None:
    client = Client(registry=_in_thread(), model_timeout=LONG)
    waiting = await client.waited_for()
    client.send(_request(1000))
    assert client.session.is_called
    reads = [client.transport.is_read]
    client.transport.kept = 1
    await _until(lambda: not client.session.is_called)
    reads.append(client.transport.is_read)
    assert reads == [True, False], "a client that leaves is noticed, until there is an answer"
    assert await waiting is Step.SEND


@_on_a_loop
async def test_a_request_that_leaves_no_room_for_more_is_waited_for_by_the_task() -> None:
    client = Client(registry=_in_thread(), model_timeout=LONG)
    waiting = await client.waited_for()
    first, incoming = _request(1000), client.session.connection.incoming
    client.send(first + bytes(incoming.scratch_bytes - len(first)))
    assert await waiting is Step.CALL
    assert not client.session.is_called
    assert not client.transport.is_read


# The outbox


@_on_a_loop
async def test_what_waits_for_who_has_gone_is_dropped() -> None:
    outbox, gone, here = Outbox(), Transport(), Transport()
    for transport in (gone, here):
        outbox.put(transport, b"a")
        outbox.put(transport, b"b")
    gone.has_closed = True
    outbox.flush()
    assert (gone.written, here.written, here.writes) == (b"", b"ab", 1)
    assert outbox.nbytes(gone) == 0
