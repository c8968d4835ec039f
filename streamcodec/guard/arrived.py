"""Arrived: moves the pieces of large bodies, under anyio. It reads first, and waits only if nothing has come.

To wait for a socket costs about as much as to copy 100 KiB, so it is worth a try. While a piece is sent on, the system
takes the next bytes of the sender, and the try finds them. One read fills a whole piece, if so much has come. The same
memory takes piece after piece, so a long read does not drive it out of the processor's cache.

With TLS a read takes one record, at most 16 KiB. There, pieces come by the ordinary way (`aio.next_event`).
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import anyio

from streamcodec.engine.events import NEED_DATA, NEED_TURN, NeedTurn
from streamcodec.server.channels import Look, SocketChannel
from streamcodec.transports import aio
from streamcodec.transports.source import EventSource
from streamcodec.transports.sync import received
from streamcodec.transports.tls import TlsSocket

_EventT = TypeVar("_EventT")

_TURN_READS: Final = 16
"""After this many reads, other tasks get their turn, however fast the peer sends."""


async def next_arrived(
    sock: socket.socket, source: EventSource[_EventT], wait: Callable[[], Awaitable[None]]
) -> _EventT | NeedTurn:
    """Return the next event of a body, or `NEED_TURN`.

    Args:
        sock: non-blocking, without TLS.
        source: within a body.
        wait: waits until the socket is readable, or for a part of that time.

    Raises:
        RemoteProtocolError: the peer's bytes break a rule.
        TimeoutError: raised by `wait`.
        OSError: the connection is broken.
    """
    reads = 0
    while (event := source.next_event()) is NEED_DATA:
        try:
            nbytes = sock.recv_into(source.get_buffer())
        except BlockingIOError:
            await wait()
            reads = 0
            continue
        received(source, nbytes)
        reads += 1
        if reads % _TURN_READS == 0:
            await anyio.lowlevel.checkpoint()
    return event


class PieceChannel(SocketChannel):
    """A client's connection over which pieces of large bodies come and go."""

    async def next_piece(self, source: EventSource[_EventT], look: Look) -> _EventT:
        """Return the next event of a body; arguments and errors are those of `next_event`."""
        if isinstance(self._socket, TlsSocket):
            return await self.next_event(source, look)
        event = await next_arrived(self._socket, source, partial(self._wait, look))
        return await self.next_event(source, look) if event is NEED_TURN else event

    async def _wait(self, look: Look) -> None:
        with anyio.move_on_after(look(anyio.current_time())) as self._reading:
            await anyio.wait_readable(self._socket)

    async def send_buffers(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Send parts that exist already; they are not empty. The errors are those of `send`."""
        await aio.send_batch(self._socket, [memoryview(buffer) for buffer in buffers], self._limit)
