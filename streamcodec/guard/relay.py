"""Relay: passes small requests on, and their answers back, within callbacks of asyncio.

To wake a task, with a time limit around its wait, takes longer than all other work on a small request. So no task is
woken for one that comes alone and whole, and whose head is known, if a connection to the server behind is kept. A
callback reads the request, checks it and sends it on, and another one reads the answer and sends it back. These are two
reads and two sends.

A relay has no rules and no limits of its own: `Requests.find_alone` has those of `Requests.find`. What is unusual is
left to the task of the connection, which goes on in the ordinary way at one of three places:

- before a request: the HTTP connection is given the bytes that have come, as if it had read them;
- within a request: it is given all bytes of the request, and the task takes over the connection to the server behind,
  on which they were sent, wholly or in part. It does not matter whether the answer is late, unusual, or lost: the task
  finds that out;
- within an answer: the task sends the rest (`Unsent`).

Only while the task waits here, the event loop looks at the sockets for the relay.
"""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import suppress
from typing import Final, Protocol, cast

from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NEED_DATA
from streamcodec.guard.answers import Answer, Answers
from streamcodec.guard.arrived import PieceChannel
from streamcodec.guard.upstream import Held, Upstream, unsent
from streamcodec.guard.whole import Alone, Incoming, Whole
from streamcodec.http.messages import HttpEvent
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.server.channels import Look
from streamcodec.transports.sync import received
from streamcodec.transports.system import send_some

_SECONDS: Final = 0.1
"""So long an answer is awaited here. Then the task waits, with time limits, and looks whether the client is there. And
so long a connection to the server behind is kept for the next request of a client that has just sent two, without
looking again whether it is alive: the event loop tells if it ends. Others give it back at once: hundreds that ask once
would each keep one."""


class Unsent:
    """The rest of an answer that the client has not taken at once; or nothing, if no request may follow the answer.

    Attributes:
        buffers: the bytes.
    """

    __slots__ = ("buffers",)

    def __init__(self, buffers: list[memoryview]) -> None:
        """Store the bytes."""
        self.buffers: list[memoryview] = buffers


class Passage(Protocol):
    """The connection for which a relay works."""

    def may_begin(self) -> bool:
        """Whether a request may be passed on now, and another one after it."""
        ...

    def begin(self, request: Alone) -> None:
        """Report that a request is passed on."""
        ...

    def answer(self, answer: Answer, request: bytes) -> list[memoryview]:
        """Report that an answer is sent; return what is sent.

        Args:
            answer: of the server behind.
            request: all bytes of the request, which the HTTP connection has not got.
        """
        ...

    def goes_on(self, given: int) -> bool:
        """Report that the answer has been sent; return whether another request may follow.

        Args:
            given: bytes that were sent for all requests so far.
        """
        ...


def can_relay(channel: PieceChannel, upstream: Upstream) -> bool:
    """Whether a connection can have a relay: on asyncio, and without TLS on either side."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio
        return False
    return channel.plain_socket is not None and not upstream.address.is_secure


class Relay:
    """Passes small requests of one connection on, while its task waits."""

    def __init__(
        self, channel: PieceChannel, source: Incoming, passage: Passage, upstream: Upstream, answers: Answers
    ) -> None:
        """Prepare; see `can_relay`.

        Args:
            channel: of the client.
            source: its requests.
            passage: the connection.
            upstream: the server behind.
            answers: recognizes small ones.
        """
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._socket = cast("socket.socket", channel.plain_socket)
        self._source = source
        self._passage = passage
        self._upstream = upstream
        self._answers = answers
        self._is_reading = False
        self._is_fresh = True
        self._data = b""
        self._held: Held | None = None
        self._request: Alone | None = None
        self._asked = -math.inf
        self._asks_often = False
        self._clock: asyncio.TimerHandle | None = None
        self._event: Whole | HttpEvent | Unsent | None = None
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_asking(self) -> bool:
        """Whether a request has been sent, and its answer has not come: the task takes over the connection."""
        return self._request is not None

    async def next_event(self, look: Look) -> Whole | HttpEvent | Unsent:
        """Pass requests on until one comes that goes the ordinary way; return it, or the rest of an answer.

        Args:
            look: as of `Channel.next_event`.

        Raises:
            RemoteProtocolError: a request is refused.
            TimeoutError: raised by `look`.
            OSError: the connection is broken.
        """
        if (event := _event_of(self._source)) is not None:
            return event
        try:
            return await self._left_to_task(look)
        finally:
            self._stop()

    def look_again(self) -> None:
        """Make a waiting `next_event` call `look` at once."""
        if not self._waiter.done():
            self._waiter.set_result(None)

    def take_held(self) -> Held | None:
        """Return the connection of a request that was sent, wholly or in part, if there is one; give it back later."""
        held, self._held = self._held, None
        self._request = None
        return held

    def close(self) -> None:
        """Give up a request whose answer has not come."""
        if (held := self.take_held()) is not None:
            self._upstream.release(held)
        if self._clock is not None:
            self._clock.cancel()

    async def _left_to_task(self, look: Look) -> Whole | HttpEvent | Unsent:
        """Wait for what is left to the task."""
        self._event = self._failure = None
        self._is_fresh = self._source.is_fresh
        self._read()
        while self._event is None:
            timer = self._loop.call_later(look(self._loop.time()), self.look_again)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                timer.cancel()
            self._raise_failure()
            if self._data:  # of a request that was sent; or its beginning, at which `look` looks
                self._event = self._given_up()
        return self._event

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None  # its traceback refers to this object
        if failure is not None:
            raise failure

    def _given_up(self) -> Whole | HttpEvent | None:
        """Give the connection the bytes that have come, and return its event, if there is one."""
        data, self._data = self._data, b""
        self._is_fresh = False
        self._source.take(data)
        return _event_of(self._source)

    # What the event loop calls

    def _readable(self) -> None:
        """Read from the client."""
        if self._request is not None:  # the client has left, or sent another request: the answer comes first
            self._stop_reading()
            return
        try:
            if not self._receive():
                return
        except BlockingIOError:  # a false alarm of the system, which is permitted
            return
        except Exception as error:  # noqa: BLE001 - the task raises it
            self._failure = error
        self._leave_to_task()

    def _receive(self) -> bool:
        """Read, and pass a request on; return whether something is left to the task."""
        source = self._source
        if self._is_fresh:
            come = self._socket.recv(SCRATCH_BYTES - len(self._data))
            self._data += come
            request = source.find_alone(self._data) if come else None
            if request is NEED_DATA:
                return False
            if isinstance(request, Alone) and (held := self._hold()) is not None:
                return not self._sends(held, request)
            self._event = self._given_up()
        else:
            received(source, self._socket.recv_into(source.get_buffer()))
            self._event = _event_of(source)
        return self._event is not None

    def _hold(self) -> Held | None:
        """Return a connection to the server behind, if a request may be passed on now and one is kept."""
        if not self._passage.may_begin():
            return None
        if self._held is None and (held := self._upstream.hold_at_once()) is not None:
            self._held = held
            self._loop.add_reader(held.connection.socket, self._answer_readable)
            if self._clock is None:
                self._clock = self._loop.call_later(_SECONDS, self._look_at_clock)
        return self._held

    def _sends(self, held: Held, request: Alone) -> bool:
        """Send a request to the server behind; return whether all of it was sent."""
        self._request = request
        before, self._asked = self._asked, self._loop.time()
        self._asks_often = self._asked - before < _SECONDS
        self._passage.begin(request)
        try:
            return held.begin(request.outgoing)
        except OSError:  # the task gets it, too
            return False

    def _answer_readable(self) -> None:
        """Read from the server behind."""
        held = cast("Held", self._held)
        if self._request is None:  # it has closed the connection
            held.is_good = False
            self._give_back()
            return
        try:
            if self._passes_back(held):
                return
        except Exception as error:  # noqa: BLE001 - the task raises it
            self._failure = error
        self._leave_to_task()

    def _passes_back(self, held: Held) -> bool:
        """Read, and send the answer to the client; return whether nothing is left to the task."""
        try:
            answer = held.receive(self._answers)
        except BlockingIOError:
            return True
        except (OSError, MessageError):  # the task finds the same
            return False
        if isinstance(answer, Answer):
            self._event = self._send(answer)
            return self._event is None
        return answer is NEED_DATA

    def _send(self, answer: Answer) -> Unsent | None:
        """Send an answer to the client; return what is left to the task, if anything."""
        data, self._data, self._request = self._data, b"", None
        parts = self._passage.answer(answer, data)
        sent = 0
        with suppress(BlockingIOError):
            sent = send_some(self._socket, parts)
        self._channel.count(sent)
        rest = unsent(parts, sent)
        if rest or not self._passage.goes_on(self._channel.given):
            return Unsent(rest)
        self._read()
        if not self._asks_often:
            self._give_back()
        return None

    def _look_at_clock(self) -> None:
        """Give back a connection that is not used, and have the task wait for an answer that is late."""
        self._clock = None
        if self._held is None:
            return
        left = self._asked + _SECONDS - self._loop.time()
        if left > 0:
            self._clock = self._loop.call_later(left, self._look_at_clock)
        elif self._request is None:
            self._give_back()
        else:
            self._leave_to_task()

    # Who looks at the sockets

    def _leave_to_task(self) -> None:
        self._stop()
        self.look_again()

    def _stop(self) -> None:
        """Look at no socket any more, and keep a connection to the server behind only if its answer is awaited."""
        self._stop_reading()
        if self._held is not None and self._request is None:
            self._give_back()
        elif self._held is not None:
            self._loop.remove_reader(self._held.connection.socket)

    def _give_back(self) -> None:
        held, self._held = cast("Held", self._held), None
        self._loop.remove_reader(held.connection.socket)
        self._upstream.release(held)

    def _read(self) -> None:
        if not self._is_reading:
            self._loop.add_reader(self._socket, self._readable)
            self._is_reading = True

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._socket)
            self._is_reading = False


def _event_of(source: Incoming) -> Whole | HttpEvent | None:
    event = source.next_event()
    return None if event is NEED_DATA else cast("Whole | HttpEvent", event)  # between two requests, there are no turns
