"""Lingering: lets a client read its answer before the connection is closed while it still sends.

Closing a socket with unread bytes resets the connection, and the answer may be lost on its way. So after a refusal the
server closes its sending direction, and reads and drops what arrives: until the client closes, for some time, or up to
some bytes. A time limit alone is not enough: a client on a fast network sends gigabytes meanwhile.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

import anyio

from streamcodec.engine.events import NEED_DATA, NeedData
from streamcodec.engine.placement import uninitialised_bytes
from streamcodec.transports import aio

_BUFFER_BYTES: Final = 64 << 10

_MOST_BYTES: Final = 256 << 20
"""Most bytes that are dropped: what arrives at 1 Gbit/s within the default `linger_timeout`. KServe's client sends all
of 64 MiB before it reads the refusal."""


class Rest:
    """Drops bytes until the input ends, or there are too many. An event source whose only event is this end."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._scratch = uninitialised_bytes(_BUFFER_BYTES)
        self._left = _MOST_BYTES

    def next_event(self) -> bool | NeedData:
        """Return true at the end."""
        return NEED_DATA if self._left > 0 else True

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return memory for the next bytes."""
        return self._scratch

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:  # noqa: ARG002 - as before
        """Return the same memory, in a list."""
        return [self._scratch]

    def buffer_updated(self, nbytes: int) -> None:
        """Drop the bytes."""
        self._left -= nbytes

    def work(self) -> None:
        """Do nothing."""

    def receive_eof(self) -> None:
        """Report the end of the input."""
        self._left = 0


async def refuse(sock: socket.socket, refusal: bytes, seconds: float) -> None:
    """Send a refusal to a new connection, whatever it requests, and linger. The socket stays open.

    Args:
        sock: non-blocking, and new, so that the system takes the whole answer at once.
        refusal: a response that says `Connection: close`.
        seconds: time to linger; 0 for none.
    """
    with suppress(OSError):  # the client has left
        sock.send(refusal)
        sock.shutdown(socket.SHUT_WR)
        with suppress(BlockingIOError):  # bytes that have arrived are read in any case
            sock.recv(_BUFFER_BYTES)
        with anyio.move_on_after(seconds):
            await aio.next_event(sock, Rest())
