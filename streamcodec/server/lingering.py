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
"""As much as 1 Gbit/s brings within the usual `linger_timeout`. KServe's client sends all of 64 MiB before it reads why
they were refused."""


class Rest:
    """Drops bytes until they end or there are too many: an event source whose only event is that."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._scratch = uninitialised_bytes(_BUFFER_BYTES)
        self._left = _MOST_BYTES

    def next_event(self) -> bool | NeedData:
        """Return true at the end."""
        return NEED_DATA if self._left > 0 else True

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return memory for the next bytes."""
        return self._scratch

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:  # noqa: ARG002 - as before
        """Return the same."""
        return [self._scratch]

    def buffer_updated(self, nbytes: int) -> None:
        """Drop them."""
        self._left -= nbytes

    def work(self) -> None:
        """Do nothing."""

    def receive_eof(self) -> None:
        """Tell that no more will come."""
        self._left = 0


async def refuse(sock: socket.socket, refusal: bytes, seconds: float) -> None:
    """Answer whatever a new connection asks, and linger for so long. It waits for nothing else; the socket stays open.

    Args:
        sock: non-blocking, so new that the system takes the whole answer.
        refusal: a response that says `Connection: close`.
        seconds: 0 not to linger.
    """
    with suppress(OSError):  # the client has gone
        sock.send(refusal)
        sock.shutdown(socket.SHUT_WR)
        with suppress(BlockingIOError):  # what is there already is read in any case
            sock.recv(_BUFFER_BYTES)
        with anyio.move_on_after(seconds):
            await aio.next_event(sock, Rest())
