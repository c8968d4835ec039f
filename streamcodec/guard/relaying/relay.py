"""Relay: passes plain requests on, and plain answers back, within callbacks of asyncio.

To wake a task, with a time limit around its wait, takes longer than all other work on a small request. So no task is
woken for a request that `Requests` recognizes, if a connection to the server behind is kept. A callback reads the
request, checks it and sends it on, and another one reads the answer and sends it back: two reads and two sends. What
does not come in one read is moved by two pumps, piece by piece, through memory of a fixed size. The server behind gets
no byte of a body that may be wrong before it was checked, and so never the last byte of one that is.

A relay has no rules and no limits of its own. What is unusual is left to the task of the connection, which goes on in
the ordinary way:

- before a request: the HTTP connection is given the bytes that have come, as if it had read them;
- within a request or an answer, at any byte (`Passed`): if something is unusual, broken or late. The task finds out
  what it is. So a relay needs no time limits. It ends before any limit of the client could be over.

Only while the task waits here, the event loop looks at the sockets for the relay.
"""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Any, Final, cast

from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NEED_DATA
from streamcodec.guard.reading import ClientRequests
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.relaying.passing import Passage, Passed
from streamcodec.guard.relaying.pump import PUMP_BYTES, Pump, Readiness
from streamcodec.guard.relaying.requests import AT_ONCE_BYTES, PlainAnswer, PlainRequest
from streamcodec.guard.shared import Shared
from streamcodec.guard.upstream import Held, Upstream
from streamcodec.http.connection import State
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.runtime.timeouts import Look, first_timeout
from streamcodec.server.sockets.accepting import brings_health_check
from streamcodec.transports import turns
from streamcodec.transports.sync import input_poll, received

_SECONDS: Final = 0.1
"""So long a byte is awaited here. Then the task waits, with time limits, and looks whether the client is there. And so
long a connection to the server behind is kept for the next request of a client that has just sent two, without looking
again whether it is alive: the event loop tells if it ends. Others give it back at once: hundreds that ask once would
each keep one."""

_PART_OF_LIMITS: Final = 4
"""A request goes on for at most this part of the shortest limit of time. Then the task looks at all limits."""


def can_relay(channel: PieceChannel, upstream: Upstream) -> bool:
    """Whether a connection can have a relay: on asyncio, and without TLS on either side."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio
        return False
    return channel.plain_socket is not None and not upstream.address.is_secure


class Relay:
    """Passes plain requests of one connection on, while its task waits."""

    def __init__(
        self, channel: PieceChannel, client: str, source: ClientRequests, passage: Passage, shared: Shared
    ) -> None:
        """Prepare; see `can_relay`.

        Args:
            channel: of the client.
            client: its address.
            source: its requests on the ordinary way.
            passage: the connection.
            shared: the parts of the guard.
        """
        options = shared.options
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._client = client
        self._socket = cast("socket.socket", channel.plain_socket)
        self._source = source
        self._passage = passage
        self._upstream = shared.upstream
        self._requests = shared.requests
        self._answers = shared.answers
        self._seconds = min(first_timeout(options), options.write_timeout) / _PART_OF_LIMITS
        self._from_client = Readiness(
            self._client_readable, lambda: self._request is None and brings_health_check(self._socket)
        )
        self._from_server = Readiness(
            self._server_readable, lambda: self._request is not None and self._request.known.permit.is_health_check
        )
        self._up = Pump(self._from_client, self._request_drained, shared.pipes)
        self._down = Pump(self._from_server, self._answer_drained, shared.pipes)
        self._is_fresh = True
        self._data = b""
        self._coming: PlainRequest | None = None
        self._request: PlainRequest | None = None
        self._come = b""
        self._answer: PlainAnswer | None = None
        self._held: Held | None = None
        self._server = self._socket
        self._server_poll: Any  # while there is `_held`
        self._asked = -math.inf
        self._asks_often = False
        self._seen = 0
        self._clock: asyncio.TimerHandle | None = None
        self._event: HttpEvent | Passed | None = None
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] = self._loop.create_future()

    async def next_event(self, look: Look) -> HttpEvent | Passed:
        """Pass requests on until one goes the ordinary way; return its first event, or how far it has come.

        Args:
            look: as of `Channel.next_event`; called while no request is passed on.

        Raises:
            RemoteProtocolError: a request is refused.
            TimeoutError: raised by `look`.
            OSError: the connection is broken.
        """
        if turns.must_wait(self._source):
            await turns.wait(self._source)
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

    def close(self) -> None:
        """Give up a request whose answer has not come, and refer to nobody who refers to this."""
        self._end_passing()
        for part in (self._from_client, self._from_server, self._up, self._down):
            part.close()
        if self._clock is not None:
            self._clock.cancel()

    async def _left_to_task(self, look: Look) -> HttpEvent | Passed:
        """Wait for what is left to the task."""
        self._event = self._failure = None
        incoming = self._source.connection.incoming
        self._is_fresh = incoming.state is State.HEAD and not incoming.kept  # it has nothing of the next request
        self._from_client.start(self._socket)
        while self._event is None:
            seconds = look(self._loop.time()) if self._request is None else self._seconds
            timer = self._loop.call_later(seconds, self.look_again)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                timer.cancel()
            failure, self._failure = self._failure, None  # its traceback refers to this object
            if self._data:  # the beginning of a request, at which `look` looks; it has a record, also after a failure
                self._event = self._given_up()
            if failure is not None:
                raise failure
        return self._event

    def _given_up(self) -> HttpEvent | None:
        """Give the connection the bytes that have come, and return its event, if there is one."""
        data, self._data, self._coming = self._data, b"", None
        self._is_fresh = False
        if data:
            self._source.connection.feed(data)
        else:  # the end of the input
            self._source.receive_eof()
        return _event_of(self._source)

    # What the event loop calls

    def _client_readable(self) -> None:
        """Read from the client."""
        try:
            if self._request is None:
                self._receive()
            elif not self._up.left:  # the client has left, or sent another request: the answer comes first
                self._from_client.stop()
            elif not self._up.read(self._request.check) or self._up.is_lost:
                self._hand_over()
        except BlockingIOError:  # a false alarm of the system, which is permitted
            return
        except Exception as error:  # noqa: BLE001 - the task raises it
            self._fail(error)
        if self._event is not None:
            self._leave_to_task()
        elif self._data:
            self._passage.comes()

    def _receive(self) -> None:
        """Read from a client that sends a request."""
        if not self._is_fresh:
            received(self._source, self._socket.recv_into(self._source.get_buffer()))
            self._event = _event_of(self._source)
            return
        come = self._socket.recv(SCRATCH_BYTES - len(self._data))
        self._data += come
        found = self._coming or self._requests.find(self._data, self._client) if come else None
        if found is NEED_DATA:
            return
        if isinstance(found, PlainRequest) and len(self._data) < found.size <= SCRATCH_BYTES:
            self._coming = found
        elif not (isinstance(found, PlainRequest) and self._passes_on(found)):
            self._event = self._given_up()

    def _passes_on(self, request: PlainRequest) -> bool:
        """Send what has come of a request to the server behind; return whether it may have got something."""
        left = request.size - len(self._data)
        body = memoryview(self._data)[len(request.text) :]
        if left < 0:
            return False
        if request.check is not None:
            if left and request.tensor_bytes <= AT_ONCE_BYTES:
                return False
            try:
                request.check(body[request.known.header_length :])
            except MessageError:
                return False
        if (left and not self._passage.has_room(2 * PUMP_BYTES)) or (held := self._hold()) is None:
            return False
        is_more = len(self._data) == SCRATCH_BYTES
        self._request, self._data, self._coming = request, b"", None
        before, self._asked = self._asked, self._loop.time()
        self._asks_often = self._asked - before < _SECONDS
        held.is_good = False
        self._passage.begins(request)
        self._down.sent = 0
        buffers = [memoryview(request.known.outgoing), body]
        self._up.begin(self._socket, self._server, buffers, left, request.check, is_more=is_more)
        self._seen = self._up.sent
        if self._up.is_lost:
            self._hand_over()
        return True

    def _hold(self) -> Held | None:
        """Return a connection to the server behind, if a request may be passed on now and one is kept."""
        if not self._passage.may_begin():
            return None
        if self._held is not None and self._server_poll.poll(0):  # its end may wait behind this request
            self._give_back(is_good=False)
        if self._held is None and (held := self._upstream.hold_at_once()) is not None:
            self._held, self._server = held, held.plain_socket
            self._server_poll = input_poll(self._server)
            self._from_server.start(self._server)
            if self._clock is None:
                self._clock = self._loop.call_later(_SECONDS, self._look_at_clock)
        return self._held

    def _request_drained(self) -> None:
        """Go on when the server behind has taken what has come of a request."""
        if self._up.is_lost:
            self._hand_over()
            self._leave_to_task()

    def _server_readable(self) -> None:
        """Read from the server behind."""
        if self._request is None:  # it has closed the connection
            self._give_back(is_good=False)
            return
        try:
            if self._answer is None:
                self._receive_answer()
            elif not self._down.read(None):
                self._hand_over()
            else:
                self._answer_drained()
        except BlockingIOError:
            return
        except OSError:  # the task finds the same
            self._hand_over()
        except Exception as error:  # noqa: BLE001 - the task raises it
            self._fail(error)
        if self._event is not None:
            self._leave_to_task()

    def _receive_answer(self) -> None:
        """Read the head of an answer, and what has come behind it, and send them to the client."""
        come = self._server.recv(SCRATCH_BYTES - len(self._come))
        self._come += come
        # If the server answers before it has all, or nothing may follow, both ends have to be told.
        is_usual = self._up.is_over and self._passage.may_go_on()
        answer = self._answers.find(self._come) if come and is_usual else None
        size = 0 if answer is None else len(answer.text) + answer.length
        left = size - len(self._come)
        if left > 0 and size <= SCRATCH_BYTES:  # so that there can be another answer if it breaks off
            return
        if answer is None or left < 0 or (left and not self._passage.has_room(2 * PUMP_BYTES)):
            self._hand_over()
            return
        self._answer = answer
        self._passage.answers(answer.status)
        is_more = len(self._come) == SCRATCH_BYTES
        body, self._come = memoryview(self._come)[len(answer.text) :], b""
        self._down.begin(self._server, self._socket, [memoryview(answer.outgoing), body], left, is_more=is_more)
        self._answer_drained()

    def _answer_drained(self) -> None:
        """Go on when the client has taken what has come of an answer."""
        if self._down.is_lost:
            self._hand_over()
            self._leave_to_task()
        elif self._down.is_over:
            request, self._request, self._answer = cast("PlainRequest", self._request), None, None
            self._channel.count(self._down.sent)
            self._passage.ends(request)
            self._from_client.start(self._socket)
            cast("Held", self._held).is_good = True
            if not self._asks_often:
                self._give_back(is_good=True)

    def _look_at_clock(self) -> None:
        """Give back a connection that is not used, and have the task wait for what is late."""
        self._clock = None
        if self._held is None:
            return
        now, moved = self._loop.time(), self._up.sent + self._down.sent
        left = self._asked + _SECONDS - now
        if left <= 0 and self._request is None:
            self._give_back(is_good=True)
        elif left <= 0 and (moved == self._seen or now > self._asked + self._seconds):
            self._hand_over()
            self._leave_to_task()
        else:
            self._seen = moved if left <= 0 else self._seen
            self._clock = self._loop.call_later(left if left > 0 else _SECONDS, self._look_at_clock)

    # How it is left to the task

    def _hand_over(self, failure: Exception | None = None) -> None:
        """Have the task go on with the current request."""
        if self._answer is not None:
            self._channel.count(self._down.sent)
        self._event = Passed(
            request=cast("PlainRequest", self._request),
            held=self._held if failure is None else None,
            unsent=self._up.unsent(),
            left=self._up.left,
            come=self._come if self._answer is None else self._answer.text,
            answer=self._answer,
            answer_unsent=self._down.unsent() if self._answer else [],
            answer_left=self._down.left if self._answer else 0,
            failure=failure,
        )
        if failure is None:
            self._from_server.stop()
            self._held = None
        self._end_passing()

    def _fail(self, error: Exception) -> None:
        """Have the task answer a request that is refused within its body, or raise any other error."""
        if self._request is not None and isinstance(error, MessageError | OSError):
            self._hand_over(failure=error)
        else:
            self._failure = error
            self._leave_to_task()

    def _leave_to_task(self) -> None:
        self._stop()
        self.look_again()

    def _end_passing(self) -> None:
        self._request = self._answer = None
        self._come = b""
        self._up.stop()
        self._down.stop()
        if self._held is not None:
            self._give_back(is_good=False)

    def _stop(self) -> None:
        """Look at no socket any more, and keep a connection to the server behind only within a request."""
        self._from_client.stop()
        self._from_server.stop()
        if self._held is not None and self._request is None:
            self._give_back(is_good=self._held.is_good)

    def _give_back(self, *, is_good: bool) -> None:
        held, self._held = cast("Held", self._held), None
        self._from_server.stop()
        held.is_good = is_good
        self._upstream.release(held)


def _event_of(source: ClientRequests) -> HttpEvent | None:
    event = source.next_event()
    return None if event is NEED_DATA else cast("HttpEvent", event)  # between two requests, there are no turns
