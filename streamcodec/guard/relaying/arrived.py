"""Arrived: reads large bodies with few waits and in long reads, under anyio.

To wait for a socket costs about as much as to copy 100 KiB. So a read is tried first: while a piece is sent on, the
system takes the next bytes of the sender, and the try finds them. One read fills a whole piece, if so much has come.
The same memory takes piece after piece, so a long read does not drive it out of the processor's cache.

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
from streamcodec.server.connection.socketchannel import SocketChannel
from streamcodec.transports import aio, turns
from streamcodec.transports.source import EventSource
from streamcodec.transports.sync import received
from streamcodec.transports.tls.sockets import TlsSocket

_EventT = TypeVar("_EventT")


async def next_arrived(
    sock: socket.socket, source: EventSource[_EventT], wait: Callable[[], Awaitable[None]]
) -> _EventT:
    """Return the source's next event.

    Args:
        sock: non-blocking, without TLS.
        source: of the events.
        wait: waits until the socket is readable.

    Raises:
        RemoteProtocolError: the peer's bytes break a rule.
        TimeoutError: raised by `wait`.
        OSError: the connection is broken.
    """
    while True:
        if turns.must_wait(source):
            await turns.wait(source)
        event = source.next_event()
        if event is NEED_TURN:
            await turns.work(source)
        elif event is not NEED_DATA:
            return event
        else:
            received(source, await _read(sock, source, wait))


async def _read(sock: socket.socket, source: EventSource[object], wait: Callable[[], Awaitable[None]]) -> int:
    """Read once; return how many bytes, 0 at the end. After a wait, memory is asked for again: others share it."""
    while True:
        try:
            return sock.recv_into(source.get_buffer())
        except BlockingIOError:
            await wait()


class PieceChannel(SocketChannel):
    """A client's connection over which pieces of large bodies come and go."""

    async def next_piece(self, source: EventSource[_EventT], look: Look) -> _EventT:
        """Return the next event of a body; arguments and errors are those of `next_event`."""
        if isinstance(self._socket, TlsSocket):
            return await self.next_event(source, look)
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
