"""Channels by themselves: one client's turn, the wait for a slow one, and the end, over a transport that notes it all.

The event loop is real, its time is not waited for where that can be avoided.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import anyio
import pytest

from streamcodec.server import ServerOptions
from streamcodec.server.admission import Admission
from streamcodec.server.channels import ProtocolChannel, SocketChannel
from streamcodec.server.express import Express
from streamcodec.server.outbox import Outbox
from streamcodec.server.patience import Taking
from streamcodec.server.session import Session, Step
from streamcodec.service import Service
from tests.server.models import models
from tests.server.wire import GET_LIVE, head

ANSWER = b"HTTP/1.1 200 "
LONG = 60.0
"""Seconds that nothing here takes."""


class Transport(asyncio.Transport):
    """Takes all, or keeps it as if the client took nothing; notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.kept = 0
        self.is_read = False
        self.has_closed = False
        self.calls: list[str] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep none."""

    def get_write_buffer_size(self) -> int:
        return self.kept

    def is_closing(self) -> bool:
        return self.has_closed

    def write(self, data: Any) -> None:  # noqa: ANN401 - as in the base class
        assert not self.has_closed
        self.written += bytes(data)

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

    def __init__(self, options: ServerOptions | None = None) -> None:
        options = options or ServerOptions()
        service = Service(models())
        self.outbox = Outbox(0.0)
        self.session = Session(service, Express(service), Admission(options))
        self.taking = Taking(options)
        self.channel = ProtocolChannel(self.session, self.taking, self.outbox, options.max_pipelined_bytes)
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
        """Let data come in one turn, as far as it is read."""
        while data and self.transport.is_read:
            buffer = self.channel.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.channel.buffer_updated(size)
            data = data[size:]
        assert not data

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


# One client's turn


@_on_a_loop
async def test_in_each_turn_sixteen_small_requests_of_a_client_are_answered_and_none_is_forgotten() -> None:
    client = Client()
    waiting = await client.waited_for()
    client.send(GET_LIVE * 100)
    sent = [client.answers]
    while client.outbox.behind:
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
    assert (client.answers, len(client.outbox.behind), client.transport.is_read) == (16, 0, True)
    await _ended(waiting)


@_on_a_loop
async def test_where_others_are_behind_a_client_is_answered_once_before_their_turn() -> None:
    client, other = Client(), list[int]()
    waiting = await client.waited_for()
    client.outbox.later(lambda: other.append(client.answers))
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
    assert not client.outbox.behind
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
    client.send(GET_LIVE * 3 + head("/v2/models/nobody", method="GET") + head("/v2/models/nobody/infer"))
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
    with anyio.fail_after(LONG), pytest.raises(TimeoutError, match="does not take"):
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
    client = Client(ServerOptions(write_timeout=0.3, request_timeout=0.3))
    for _ in range(6):
        client.channel.pause_writing()
        asyncio.get_running_loop().call_soon(client.channel.resume_writing)
        await client.channel.send([b"x"])
        await asyncio.sleep(0.1)  # the server's own time


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


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_socket_whose_client_takes_nothing_is_given_up_in_time(backend: str) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, closing(SocketChannel(ours, Taking(ServerOptions(write_timeout=0.1)))) as channel:
            with anyio.fail_after(LONG), pytest.raises(TimeoutError, match="does not take"):
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
        session = Session(service, Express(service), Admission(ServerOptions()))
        with theirs, closing(SocketChannel(ours, Taking(ServerOptions()))) as channel:
            theirs.send(GET_LIVE)
            assert await channel.next_event(session, lambda _: LONG) is Step.SEND
            session.outgoing = []
            session.has_sent()
            with anyio.fail_after(LONG), pytest.raises(TimeoutError):
                await channel.next_event(session, look)
        assert looks == sorted(looks)

    anyio.run(main, backend=backend)
