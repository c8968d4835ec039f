"""Duplex: sends a message while its answer is received, for clients.

A server may answer before it has read everything: to refuse, or because its answer grows row by row. A client that
first sends and then reads would see a refusal too late. With a growing answer both ends could wait for each other (a
deadlock). So both directions make progress whenever they can. A timeout means that neither direction has moved.

Progress is also what the peer acknowledges, where the system tells that: on a slow link the system takes a whole
message at once, and the peer receives it for a long time after that.

There is one class for each way of waiting. This module does not know the content of either direction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from functools import cached_property, partial
from typing import Generic

import anyio

from streamcodec.engine.events import NEED_DATA, NEED_TURN, NeedData, NeedTurn
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.message import Part
from streamcodec.transports import aio
from streamcodec.transports.beside import beside
from streamcodec.transports.sockets.acknowledged import SLICES, Silence
from streamcodec.transports.sockets.system import new_poll, send_some
from streamcodec.transports.sockets.vectors import SendQueue, async_batches, is_one_batch
from streamcodec.transports.source import READ_BYTES, EventSource, EventT
from streamcodec.transports.sync import receive, received
from streamcodec.transports.timelimit import TimeLimit
from streamcodec.transports.tls.sockets import POLLIN, POLLOUT, Socket, has_pending


class Duplex(Generic[EventT]):
    """Sends and reads in one thread.

    Attributes:
        is_sent: whether everything has been sent.
        sent: bytes that the operating system has taken.
        lost: the connection error that has ended the sending early; the answer may still have arrived.
    """

    def __init__(
        self,
        sock: Socket,
        source: EventSource[EventT],
        parts: Sequence[Part],
        *,
        read_timeout: float | None = None,
        write_timeout: float | None = None,
        limit: TimeLimit | None = None,
    ) -> None:
        """Prepare to send.

        Args:
            sock: non-blocking.
            source: receives the bytes that are read.
            parts: what to send; see `sync.send`.
            read_timeout: seconds without progress before giving up, once everything has been sent, or up to a quarter
                longer; None waits for ever.
            write_timeout: seconds without progress in either direction, while there is something to send; as above.
            limit: on the whole call; None for none.
        """
        self._socket = sock
        self._source = source
        self._parts = parts
        self._read_timeout = read_timeout
        self._write_timeout = write_timeout
        self._limit = limit or TimeLimit(None)
        self._poll = new_poll()
        self._awaited = 0
        self._is_stopped = False
        self.is_sent: bool = False
        self.sent: int = 0
        self.lost: ConnectionError | None = None

    @cached_property
    def _queue(self) -> SendQueue:
        """What is left to be sent. A short message never needs it."""
        return SendQueue(self._parts)

    def next_event(self) -> EventT:
        """Return the next event of the received bytes; send meanwhile.

        Raises:
            RemoteProtocolError: the peer's bytes break a rule.
            TimeoutError: neither direction has moved for too long, or the whole call took longer than `limit`.
            OSError: the connection is broken.
            Exception: any exception of the source of a part.
        """
        while (event := self._source.next_event()) is NEED_DATA or event is NEED_TURN:
            if event is NEED_TURN:
                self._source.work()
                continue
            if not self._awaited:  # at first, because a short message is then sent as a whole
                self._send()
            self.move()
        return event

    def send_at_once(self) -> bool:
        """Send the message before anything else, as far as the system takes it; return whether it took all."""
        if not is_one_batch(self._parts):
            return False
        try:
            nbytes = self.sent = send_some(self._socket, self._parts)
        except BlockingIOError:
            return False
        except ConnectionError as error:
            self._lose(error)
            return False
        self.is_sent = nbytes == sum(map(len, self._parts))
        if not self.is_sent and self._queue:
            self._queue.sent(nbytes)
        return self.is_sent

    def stop_sending(self) -> None:
        """Send nothing more. If the message was not complete, the connection cannot be used again."""
        self._queue.clear()
        self._is_stopped = True

    def move(self) -> None:
        """Wait until one direction can move, and move it; when all is sent, read once. Errors are as of `next_event`.

        Raises:
            TimeoutError: as from `next_event`; so is `OSError`.
        """
        is_sending = not self.is_sent and bool(self._queue)
        self.is_sent = self.is_sent or not (is_sending or self._is_stopped)
        awaited = POLLIN | POLLOUT if is_sending else POLLIN
        if awaited != self._awaited:
            self._poll.register(self._socket, awaited)
            self._awaited = awaited
        events = self._ready(self._write_timeout if is_sending else self._read_timeout)
        if events & POLLOUT:
            self._send()
        if events & ~POLLOUT:
            try:
                nbytes = receive(self._socket, self._source)
            except BlockingIOError:  # a false alarm of the system, which is permitted
                return
            received(self._source, nbytes)

    def _ready(self, timeout: float | None) -> int:
        """Wait; return the events for which the socket is ready.

        Raises:
            TimeoutError: as from `next_event`.
        """
        slice_seconds = None if timeout is None else timeout / SLICES
        is_pending, silence = has_pending(self._socket), None
        while True:
            seconds = 0.0 if is_pending else self._limit.at_most(slice_seconds)
            ready = self._poll.poll(None if seconds is None else seconds * 1000)
            if ready or is_pending:
                break
            silence = silence or Silence(self._socket)
            if silence.is_over():
                raise self._limit.too_long(timeout)
        events: int = ready[0][1] if ready else 0
        return events | POLLIN if is_pending else events

    def _send(self) -> None:
        if self.is_sent or not self._queue:
            return
        try:
            nbytes = send_some(self._socket, self._queue.vectors())
        except BlockingIOError:
            pass
        except ConnectionError as error:
            self._lose(error)
        else:
            self._queue.sent(nbytes)
            self.sent += nbytes

    def _lose(self, error: ConnectionError) -> None:
        self.lost = error.with_traceback(None)
        self.stop_sending()


class AsyncDuplex(Generic[EventT]):
    """Sends in a separate task, unless everything can be sent at once.

    Attributes:
        is_sent: whether everything has been sent.
        lost: the connection error that has ended the sending early; the answer may still have arrived.
    """

    def __init__(
        self,
        sock: Socket,
        source: EventSource[EventT],
        parts: Sequence[Part],
        *,
        read_timeout: float | None = None,
        write_timeout: float | None = None,
        limit: TimeLimit | None = None,
    ) -> None:
        """Prepare to send; the arguments are those of `Duplex`. See `aio.send` for the parts."""
        self._socket = sock
        self._source = source
        self._parts = parts
        self._read_timeout = read_timeout
        self._limit = aio.ProgressLimit(write_timeout)
        self._end = limit
        self._rest: Sequence[Part] | None = None
        self._sending: anyio.CancelScope | None = None
        self._reading: anyio.CancelScope | None = None
        self._failure: Exception | None = None
        self._is_long = False
        self.is_sent: bool = False
        self.lost: ConnectionError | None = None

    def sending(self) -> AbstractAsyncContextManager[None]:
        """Send while the body of the `async with` reads; at its end, the sending ends too."""
        rest = self._send_some() if self._rest is None else self._rest
        return self._sending_beside(rest) if rest else nullcontext()

    @asynccontextmanager
    async def _sending_beside(self, rest: Sequence[Part]) -> AsyncIterator[None]:
        self._sending = anyio.CancelScope()
        async with beside(partial(self._send, rest, self._sending)):
            yield

    @property
    def sent(self) -> int:
        """Bytes that the operating system has taken."""
        return self._limit.sent

    async def next_event(self) -> EventT:
        """Return the next event of the received bytes; the errors are those of `Duplex.next_event`."""
        while self._sending is not None:
            with anyio.CancelScope() as self._reading:
                return await aio.next_event(self._socket, _Watched(self._source, self._limit), limit=self._end)
        failure, self._failure = self._failure, None  # its traceback refers to this object
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # and to this frame
        return await aio.next_event(
            self._socket, self._source, timeout=self._read_timeout, limit=self._end, has_more=self._is_long
        )

    def send_at_once(self) -> bool:
        """Send the message before anything else, as far as the system takes it; return whether it took all."""
        self._rest = self._send_some()
        return self.is_sent

    async def move(self) -> None:
        """Wait, and read once, when all is sent; the errors are those of `next_event`."""
        nbytes = await aio.read_once(self._socket, self._source, timeout=self._read_timeout, limit=self._end)
        self._is_long = nbytes >= READ_BYTES

    def stop_sending(self) -> None:
        """Send nothing more. If the message was not complete, the connection cannot be used again."""
        if self._sending is not None:
            self._sending.cancel()

    def _send_some(self) -> Sequence[Part]:
        """Send as much as possible without waiting; return the rest."""
        parts = [part for part in self._parts if isinstance(part, Rows) or part]
        if not is_one_batch(parts):
            return parts
        try:
            nbytes = self._limit.sent = send_some(self._socket, parts)
        except BlockingIOError:
            return parts
        except ConnectionError as error:
            self.lost = error
            return ()
        self.is_sent = nbytes == sum(map(len, parts))
        if self.is_sent:
            return ()
        queue = SendQueue(parts)
        if queue:
            queue.sent(nbytes)
        return queue.rest()

    async def _send(self, parts: Sequence[Part], scope: anyio.CancelScope) -> None:
        """Send until everything is sent or an error occurs; then wake the reader, which raises the error."""
        with scope:
            try:
                async with aclosing(async_batches(parts)) as coming:
                    async for batch in coming:
                        if not await self._send_batch(batch):
                            break
                    else:
                        self.is_sent = True
            except Exception as failure:  # noqa: BLE001 - the reader raises any exception of a source of windows
                self._failure = failure
        self._sending = None
        if self._reading is not None:
            self._reading.cancel()

    async def _send_batch(self, batch: list[memoryview]) -> bool:
        try:
            await aio.send_batch(self._socket, batch, self._limit)
        except ConnectionError as error:
            self.lost = error.with_traceback(None)
        return self.lost is None


class _Watched(Generic[EventT]):
    """Wraps a source so that reading and working count as progress."""

    def __init__(self, source: EventSource[EventT], limit: aio.ProgressLimit) -> None:
        self._source = source
        self._limit = limit
        self.receive_eof = source.receive_eof
        self.get_buffer = source.get_buffer
        self.get_buffers = source.get_buffers
        self.work = source.work

    def buffer_updated(self, nbytes: int) -> None:
        self._limit.renew()
        self._source.buffer_updated(nbytes)

    @property
    def inflates(self) -> bool:
        return getattr(self._source, "inflates", False)

    @property
    def is_urgent(self) -> bool:
        return getattr(self._source, "is_urgent", False)

    def next_event(self) -> EventT | NeedData | NeedTurn:
        event = self._source.next_event()
        if event is NEED_TURN:
            self._limit.renew()
        return event
