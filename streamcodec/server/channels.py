"""Channels: the two ways in which a connection's bytes come and go. Nothing of the protocol is known here.

A `SocketChannel` waits for a socket of our own, under anyio on any event loop. A `ProtocolChannel` is an asyncio
transport that calls back, on plain asyncio and uvloop: a request that is answered within the callback costs neither a
wait nor a task that wakes up, which is most of what a small request costs elsewhere.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, cast

import anyio

from streamcodec.core.events import NEED_DATA
from streamcodec.server.outbox import Outbox
from streamcodec.server.session import Session, Step
from streamcodec.transports import aio
from streamcodec.transports.protocol import EventProtocol
from streamcodec.transports.sync import EventSource
from streamcodec.transports.vectors import Parts

_EventT = TypeVar("_EventT")

_LOOKS: Final = 4
"""So often within a time limit somebody looks whether it has passed."""


class Channel(Protocol):
    """A connection to a client."""

    async def next_event(self, source: EventSource[_EventT], patience: Callable[[], float]) -> _EventT:
        """Return the next event of a source that bytes are read for.

        Args:
            source: the session, or what takes its place for a while.
            patience: returns the seconds without a byte before giving up, as things are now.

        Raises:
            TimeoutError: nothing came for so long.
            OSError: the connection is broken.
        """
        ...

    async def send(self, parts: Parts, *, timeout: float) -> None:
        """Send parts of a message.

        Raises:
            TimeoutError: the client took nothing for `timeout` seconds.
            OSError: the connection is broken.
        """
        ...

    async def flush(self, *, timeout: float) -> None:
        """Wait until all has been sent.

        Raises:
            TimeoutError: the client took nothing for `timeout` seconds.
            OSError: the connection is broken.
        """
        ...

    def end(self) -> None:
        """Tell the client that nothing more will be sent."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class SocketChannel:
    """A non-blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over the socket."""
        self._socket = sock

    async def next_event(self, source: EventSource[_EventT], patience: Callable[[], float]) -> _EventT:
        """Read until there is an event."""
        event = source.next_event()
        if event is not NEED_DATA:
            return event
        await aio.read(self._socket, source, timeout=patience())
        return await aio.next_event(self._socket, source, timeout=patience())  # which may differ, now that it has begun

    async def send(self, parts: Parts, *, timeout: float) -> None:
        """Send without copying."""
        await aio.send(self._socket, parts, timeout=timeout)

    async def flush(self, *, timeout: float) -> None:
        """Do nothing: `send` has waited."""

    def end(self) -> None:
        """Close one direction."""
        with suppress(OSError):  # the client has gone already
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class ProtocolChannel(EventProtocol[Any]):
    """A session on an asyncio transport, which is answered from within its callbacks where that is possible."""

    def __init__(self, session: Session, outbox: Outbox) -> None:
        """Wait for `connection_made`; small answers are sent by the outbox, which is the event loop's."""
        super().__init__(session)
        self._outbox = outbox
        self._session = session
        self._progress = self._loop.time()
        self._write_timeout = math.inf

    async def next_event(self, source: EventSource[_EventT], patience: Callable[[], float]) -> _EventT:  # type: ignore[override] # a source and a time limit are added
        """Let asyncio read until there is an event that the callbacks have not seen to themselves."""
        self.source = source
        self._progress = self._loop.time()
        while True:
            limit = patience()
            left = self._progress + limit - self._loop.time()
            if left <= 0:
                raise TimeoutError
            with anyio.move_on_after(min(left, limit / _LOOKS)):
                event: _EventT = await super().next_event()
                return event

    async def send(self, parts: Parts, *, timeout: float) -> None:  # type: ignore[override] # a time limit is added
        """Send in slices that the transport can bear."""
        self._outbox.flush()
        self._write_timeout = timeout
        await super().send(parts)

    async def flush(self, *, timeout: float) -> None:
        """Send what the outbox has."""
        self._outbox.flush()
        self._write_timeout = timeout
        await self._drain()

    def received(self) -> None:
        """Answer what is small and whole at once, and leave the rest to whoever waits."""
        self._progress = self._loop.time()
        session = self._session
        if session.connection.incoming.is_filling:
            return
        if self.source is session:
            while self._is_writable and session.answer_at_once():
                if not session.is_small:
                    self._event = Step.SEND
                    self._stop_reading()
                    return
                self._outbox.put(self.transport, b"".join(cast("list[bytes]", session.outgoing)))
            if session.is_idle:
                return
        super().received()

    async def _drain(self) -> None:
        """Wait until the client has taken all that was given to the transport.

        Raises:
            TimeoutError: it has taken nothing for too long.
        """
        size = math.inf
        while not self._is_writable:
            left = self.transport.get_write_buffer_size()
            if left >= size and self._lost is None:
                msg = "the client does not take its answer"
                raise TimeoutError(msg)
            size = left
            with anyio.move_on_after(self._write_timeout):
                await super()._drain()
        self._check()

    def end(self) -> None:
        """Close one direction."""
        if not self.transport.is_closing():  # the client has gone already
            self.transport.write_eof()

    def close(self) -> None:
        """Close the transport, whatever it still holds."""
        self.transport.abort()
