"""TLS transport: a `TlsSocket` as a transport of asyncio, for protocols that give the memory to read into.

asyncio's own TLS does all handshakes that are there in one turn of the event loop: 300 clients that begin together hold
up everybody else for 0.3 s. Here the handshake has been done before, by somebody who shares the time out.

asyncio also reads into a buffer of 256 KiB per connection, which it hands to OpenSSL. Here OpenSSL gets up to 33 KiB at
a time (see `tlsreads`), decrypts straight into the protocol's memory, and encrypts from the sender's. The time is the
same for large tensors (64 MiB: 105 ms of CPU, and 108 with uvloop's TLS), and somewhat more for small requests
(137 us and 110; measured when OpenSSL still read from the socket itself).

It does what `EventProtocol` needs of a transport, on plain asyncio and uvloop. Reading begins with `resume_reading`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from streamcodec.transports.sockets.system import reset_poll
from streamcodec.transports.tls.sockets import TlsSocket

_RECORD_BYTES: Final = 16 << 10
"""The most that one record holds, and one read takes (RFC 8446, section 5.1)."""

_TURN_READS: Final = 16
"""Records that are read in one turn of the event loop, of 16 KiB at most: 0.1 ms."""

_TURN_WRITES: Final = 8
"""Writes in one turn, of 64 KiB at most: 0.2 ms."""


class TlsTransport(asyncio.Transport):
    """One connection, after its handshake."""

    def __init__(self, sock: TlsSocket, protocol: asyncio.BufferedProtocol) -> None:
        """Take over the socket, inside a running event loop, and tell the protocol so."""
        super().__init__({"socket": sock, "ssl_object": sock})
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._resets = reset_poll(sock)
        self._protocol = protocol
        self._is_reading = False
        self._is_closing = False
        self._has_ended = False
        self._is_paused = False
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._high = 0
        protocol.connection_made(self)

    # Reading

    def pause_reading(self) -> None:
        """Call the protocol with no more bytes."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        """Read again; nothing comes after the end."""
        if not (self._is_reading or self._is_closing or self._has_ended):
            self._is_reading = True
            self._loop.add_reader(self._socket, self._read)
            self._read_pending()

    def _read(self) -> None:
        """Read until nothing more has come, or others should have their turn."""
        try:
            for _ in range(_TURN_READS):
                if not self._is_reading:
                    return
                buffer = memoryview(self._protocol.get_buffer(-1))
                nbytes = self._socket.recv_into(buffer, len(buffer))
                if not nbytes:  # the client will send no more; it may still want its answer
                    self.pause_reading()
                    self._has_ended = True
                    self._protocol.eof_received()
                    return
                self._protocol.buffer_updated(nbytes)
                if nbytes < _RECORD_BYTES and not self._has_more:
                    return  # that was most likely all; to try again costs an exception
        except BlockingIOError:  # a part of a record, and perhaps a reset behind it
            pass
        except OSError as error:
            self._lose(error)
            return
        self._read_pending()

    @property
    def _has_more(self) -> bool:
        """Whether there is something to read that the event loop may not tell of: bytes in OpenSSL, or a reset."""
        return self._socket.has_pending or bool(self._resets.poll(0))

    def _read_pending(self) -> None:
        """Read on in the next turn if the event loop may not tell of what there is."""
        if self._is_reading and self._has_more:
            self._loop.call_soon(self._read)

    # Writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002 - asyncio's
        """Have the sender wait while more than `high` bytes wait, until all have been sent."""
        self._high = high or 0

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait."""
        return self._size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, or keep what the system does not take now. It is not copied: who reuses the memory has to wait."""
        if self._is_closing or not len(data):
            return
        is_first = not self._waiting
        self._waiting.append(memoryview(data))
        self._size += len(data)
        if is_first:
            self._send()
            if self._waiting:
                self._loop.add_writer(self._socket, self._write)
        if self._size > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        """Tell the client that nothing more will come. All must have been sent."""
        self._socket.end()

    def _write(self) -> None:
        self._send()
        if self._waiting or self._is_closing:
            return
        self._loop.remove_writer(self._socket)
        if self._is_paused:
            self._is_paused = False
            self._protocol.resume_writing()

    def _send(self) -> None:
        """Send what waits, until the system takes no more or others should have their turn."""
        waiting = self._waiting
        try:
            for _ in range(_TURN_WRITES):
                if not waiting:
                    return
                nbytes = self._socket.sendmsg(waiting)
                self._size -= nbytes
                while waiting and nbytes >= len(waiting[0]):
                    nbytes -= len(waiting.popleft())
                if nbytes:
                    waiting[0] = waiting[0][nbytes:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(error)

    # The end

    def is_closing(self) -> bool:
        """Whether the connection is of no further use."""
        return self._is_closing

    def abort(self) -> None:
        """Close the connection; the client is told, unless something still waits."""
        if not self._is_closing and not self._waiting:
            self._socket.end()
        self._lose(None)

    def _lose(self, error: OSError | None) -> None:
        if self._is_closing:
            return
        self.pause_reading()
        self._loop.remove_writer(self._socket)
        self._is_closing = True
        self._waiting.clear()
        self._size = 0
        self._loop.call_soon(self._forget, error)

    def _forget(self, error: OSError | None) -> None:
        self._socket.close()
        self._protocol.connection_lost(error)
        del self._protocol  # it refers to this object
