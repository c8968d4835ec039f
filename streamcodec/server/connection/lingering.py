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
from streamcodec.engine.memory.placement import uninitialised_bytes
from streamcodec.runtime.observation import Observers, client_of
from streamcodec.service.replies import Reply
from streamcodec.transports import aio

_BUFFER_BYTES: Final = 64 << 10
_DROPPED: Final = uninitialised_bytes(_BUFFER_BYTES)
"""Nobody reads what is dropped, so all connections may have it written to the same memory."""

_MOST_BYTES: Final = 256 << 20
"""Most bytes that are dropped: what arrives at 1 Gbit/s within the default `linger_timeout`. KServe's client sends all
of 64 MiB before it reads the refusal."""

_LINGERING_AT_ONCE: Final = 64
"""Most refused connections that stay open until their clients have read the refusal."""


class UnreadRest:
    """Drops bytes until the input ends, or there are too many. An event source whose only event is this end."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._left = _MOST_BYTES

    def next_event(self) -> bool | NeedData:
        """Return true at the end."""
        return NEED_DATA if self._left > 0 else True

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return memory for the next bytes."""
        return _DROPPED

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:  # noqa: ARG002 - as before
        """Return the same memory, in a list."""
        return [_DROPPED]

    def buffer_updated(self, nbytes: int) -> None:
        """Drop the bytes."""
        self._left -= nbytes

    def work(self) -> None:
        """Do nothing."""

    def receive_eof(self) -> None:
        """Report the end of the input."""
        self._left = 0


class Refusals:
    """Answers connections that are not served, and lets some of them linger."""

    def __init__(self, seconds: float, observers: Observers | None) -> None:
        """Begin without a connection.

        Args:
            seconds: how long a connection lingers.
            observers: are told about each answer.
        """
        self._seconds = seconds
        self._observers = observers
        self._lingering = 0

    async def tell(self, sock: socket.socket, reply: Reply, encoded: bytes) -> None:
        """Refuse a new connection; see `refuse`.

        Args:
            sock: of the connection.
            reply: what the observers are told.
            encoded: the same as it is sent.
        """
        if self._observers is not None:
            observation = self._observers.of(client_of(sock))(0)
            observation.answered(reply)
            observation.bytes_out = len(encoded)
            observation.end()
        await self.end(sock, encoded)

    async def end(self, sock: socket.socket, answer: bytes = b"") -> None:
        """Do the same without telling the observers, or send nothing."""
        lingers = self._lingering < _LINGERING_AT_ONCE
        self._lingering += 1
        try:
            await refuse(sock, answer, self._seconds if lingers else 0.0)
        finally:
            self._lingering -= 1


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
            await aio.next_event(sock, UnreadRest())
