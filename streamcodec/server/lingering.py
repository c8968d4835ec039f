"""Lingering: letting a client read its answer before the connection closes on what it is still sending.

Who closes a socket on bytes that nobody has read resets the connection, and with it the answer may be lost on its way.
So after a refusal nothing more is sent, which the client is told, and what comes is read and dropped: until the client
closes, or for some time, or up to some bytes. Time alone is no bound: a client next door sends gigabytes meanwhile.
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
    """Takes bytes that nobody wants, until they end or there are too many: an event source whose only event is that."""

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
