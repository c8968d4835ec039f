"""Inlet: the receiving side of the socket below a transport of asyncio.

A transport reads once, or a few times, and calls its protocol for each read; in between, the event loop makes a turn.
Within a large message this is most of the work: a client sends 64 KiB at a time, and each of them wakes the loop. So a
protocol that has been called reads on by itself (`read`). When nothing more has come, it has the system wake the loop
only for a larger piece (`SO_RCVLOWAT`).

That piece must certainly come: no more than the rest of the message. And what has come of it is not seen. So whoever
judges how fast the peer sends has the system tell of any byte before.

With TLS, and on systems that cannot do this, nothing is read here, and the transport does it all.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from typing import Any, Final

from streamcodec.transports.source import READ_BYTES, EventSource

_HAS_READV: Final = hasattr(os, "readv")

_HAS_THRESHOLD: Final = sys.platform == "linux"
"""Whether an event loop is woken by no fewer bytes than `SO_RCVLOWAT`."""

LONG_READ_BYTES: Final = 1 << 20
"""The most that is read at once where the peer is ahead: each read before it was full, and twice as long as the last.
What has come so early is not in the processor's cache any more, and each read wakes the peer."""

WAKING_BYTES: Final = 256 << 10
"""Of a large message, so much wakes the event loop. To read it takes 0.05 ms, and to be woken 0.02 ms."""


class Inlet:
    """Reads from the socket of one transport, beside it.

    Attributes:
        threshold: bytes that wake the event loop.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        """Prepare; call its methods only while the transport is not closing."""
        is_plain = _HAS_READV and transport.get_extra_info("ssl_object") is None
        self._socket: Any = transport.get_extra_info("socket") if is_plain else None
        self.threshold: int = 1
        self._size = READ_BYTES

    def read(self, source: EventSource[object], most: int) -> int:
        """Read once into the memory of a source, no more than so many bytes.

        Returns:
            How many bytes. 0 if nothing has come; or if the connection has ended, which the transport finds out.

        Raises:
            OSError: the connection is broken.
        """
        if self._socket is None:
            return 0
        size = min(self._size, most)
        try:
            nbytes = os.readv(self._socket.fileno(), [source.get_buffer(-1)[:size]])
        except BlockingIOError:
            nbytes = 0
        self._size = min(2 * size, LONG_READ_BYTES) if nbytes == size else READ_BYTES
        if nbytes:
            source.buffer_updated(nbytes)
        return nbytes

    def wake_for(self, nbytes: int) -> bool:
        """Have the event loop woken when so many bytes have come, or the connection has ended; limited to a piece.

        Returns:
            Whether it was woken by more bytes before, so that some may have come now.
        """
        nbytes = min(nbytes, WAKING_BYTES)
        before = self.threshold
        if nbytes != before and self._socket is not None and _HAS_THRESHOLD:
            self.threshold = nbytes
            with suppress(OSError):  # the peer has left
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, nbytes)
        return before > nbytes
