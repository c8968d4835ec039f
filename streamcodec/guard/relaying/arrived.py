"""Arrived: reads with few waits and in long reads, under anyio.

To wait for a socket costs about as much as to copy 100 KiB. So within a large body a read is tried first: while a piece
is sent on, the system takes the next bytes of the sender, and the try finds them. One read fills a whole piece, if so
much has come. The same memory takes piece after piece, so a long read does not drive it out of the processor's cache.

Each wait for a client has one cancel scope, where `SocketChannel` has two: a tenth of the time of a small request.

With TLS a read takes one record, at most 16 KiB. There, everything comes by the ordinary way (`aio.next_event`).
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio

from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.runtime.timeouts import Look
from streamcodec.server.connection.channels import SocketChannel
from streamcodec.transports import aio, turns
from streamcodec.transports.source import READ_BYTES, EventSource
from streamcodec.transports.sync import received
from streamcodec.transports.tls.sockets import TlsSocket

_EventT = TypeVar("_EventT")


async def next_arrived(
    sock: socket.socket, source: EventSource[_EventT], wait: Callable[[], Awaitable[None]], *, waits_first: bool = False
) -> _EventT:
    """Return the source's next event.

    Args:
        sock: non-blocking, without TLS.
        source: of the events.
        wait: waits until the socket is readable.
        waits_first: whether it is likely that nothing has come yet.

    Raises:
        RemoteProtocolError: the peer's bytes break a rule.
        TimeoutError: raised by `wait`.
        OSError: the connection is broken.
    """
    is_dry, is_due = waits_first, turns.must_wait(source)
    while True:
        if is_due:
            await turns.wait(source)
        event = source.next_event()
        if event is NEED_TURN:
            await turns.work(source)
            is_due = False
            continue
        if event is not NEED_DATA:
            return event
        nbytes = await _read(sock, source, wait, is_dry=is_dry)
        received(source, nbytes)
        is_due = turns.is_crowded(source) if is_dry else turns.must_wait(source)
        is_dry = waits_first and nbytes < READ_BYTES


async def _read(
    sock: socket.socket, source: EventSource[object], wait: Callable[[], Awaitable[None]], *, is_dry: bool
) -> int:
    """Read once; return how many bytes, 0 at the end. Memory is taken only after the wait, because others share it."""
    while True:
        if is_dry:
            await wait()
        try:
            return sock.recv_into(source.get_buffer())
        except BlockingIOError:
            is_dry = True


class PieceChannel(SocketChannel):
    """A client's connection over which pieces of large bodies come and go."""

    async def next_event(self, source: EventSource[_EventT], look: Look) -> _EventT:
        """Read until there is an event."""
        if isinstance(self._socket, TlsSocket):
            return await super().next_event(source, look)
        return await next_arrived(self._socket, source, partial(self._wait, look), waits_first=True)

    async def next_piece(self, source: EventSource[_EventT], look: Look) -> _EventT:
        """Return the next event of a body; arguments and errors are those of `next_event`."""
        if isinstance(self._socket, TlsSocket):
            return await super().next_event(source, look)
        return await next_arrived(self._socket, source, partial(self._wait, look))

    async def _wait(self, look: Look) -> None:
        while True:
            with anyio.move_on_after(look(anyio.current_time())) as self._reading:
                await anyio.wait_readable(self._socket)
                return

    async def send_buffers(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Send parts that exist already; they are not empty. The errors are those of `send`."""
        await aio.send_batch(self._socket, [memoryview(buffer) for buffer in buffers], self._limit)

    @property
    def plain_socket(self) -> socket.socket | None:
        """The socket, if it is without TLS."""
        return None if isinstance(self._socket, TlsSocket) else self._socket

    def count(self, nbytes: int) -> None:
        """Report bytes that were sent without this channel."""
        self._limit.sent += nbytes
