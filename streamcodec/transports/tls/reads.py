"""TLS reads: a socket with TLS at the server's end, of which one read is bounded.

`ssl.SSLSocket` lets OpenSSL read from the system. OpenSSL looks for data, and handles messages of TLS itself on the
way. New keys (KeyUpdate, RFC 8446, section 4.6.3) cost it 10 to 30 us for each 27 bytes. It goes on as long as the
system has bytes. So a client that sends nothing else, at 1 MB/s, would keep the event loop in one read for ever.

Here OpenSSL gets its bytes from memory, at most `_FILL_BYTES` for each read. Those that gave no data are counted. A
connection whose client sends far more of them than data is broken: `ConnectionAbortedError`. So is one whose client
does not read the answers to them.

The class has the methods of `ssl.SSLSocket` that `TlsSocket` uses, with the same errors. It is non-blocking.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Any, Final

_FILL_BYTES: Final = 33 << 10
"""The most that OpenSSL gets for one read: two records of the longest kind, or 1,250 messages of TLS itself."""

_BARREN_BYTES: Final = 64 << 10
"""What may come without data in a whole connection, besides that in `_BYTES_FOR_ONE`: 2,400 new keys."""

_BYTES_FOR_ONE: Final = 64
"""Received bytes that each byte of data accounts for. A record of one byte takes 23 to 35 bytes."""

_UNREAD_ANSWERS: Final = 16 << 10
"""The most that TLS itself answers to a client that does not read."""


class BoundedTls(socket.socket):
    """A connected, non-blocking socket with TLS, at the server's end."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        """Take over the descriptor of a socket; `do_handshake` comes next."""
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._coming, self._going, server_side=True)
        self._unsent = memoryview(b"")
        self._written = 0
        self._barren = 0
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.setblocking(False)

    def do_handshake(self) -> None:
        """Continue the handshake.

        Raises:
            ssl.SSLWantReadError: the client has to go on.
            ssl.SSLWantWriteError: the system takes no more now.
            ssl.SSLError: the handshake has failed, and the client was told so.
            OSError: the connection is broken.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()
            except ssl.SSLError:
                self._tell()
                raise
            else:
                self._flush()
                return

    def selected_alpn_protocol(self) -> str | None:
        """Return the protocol that was chosen."""
        return self._tls.selected_alpn_protocol()

    def pending(self) -> int:
        """Return how many bytes wait to be read or decrypted. Part of a record does not: OpenSSL takes it at once."""
        return self._tls.pending() or self._coming.pending

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Read into new memory; see `recv_into`."""
        buffer = bytearray(bufsize)
        return bytes(buffer[: self.recv_into(buffer, bufsize, flags)])

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:  # noqa: ANN401, ARG002 - of a socket
        """Read from one record; return how many bytes, 0 at the end.

        Raises:
            ssl.SSLWantReadError: no data have come.
            ssl.SSLError: the records are wrong, or the connection was cut.
            ConnectionAbortedError: the client sends messages of TLS itself and no data.
            OSError: the connection is broken.
        """
        filled = 0 if self.pending() else self._fill()
        try:
            count = self._read(buffer, nbytes)
            if count < 0 and not filled:
                filled = self._fill()
                count = self._read(buffer, nbytes)
        except ssl.SSLError:
            self._tell()
            raise
        self._barren = max(0, self._barren + filled - _BYTES_FOR_ONE * max(count, 0))
        if self._barren > _BARREN_BYTES or self._going.pending > _UNREAD_ANSWERS:
            msg = "the client sends messages of TLS itself and no data"
            raise ConnectionAbortedError(msg)
        if self._going.pending:
            self._tell()
        if count < 0:
            raise ssl.SSLWantReadError
        return count

    def send(self, data: Any, flags: int = 0) -> int:  # noqa: ANN401, ARG002 - of a socket
        """Encrypt and send; return how many bytes. After `ssl.SSLWantWriteError`, call it with the same bytes.

        Raises:
            ssl.SSLWantWriteError: the system has not taken all of it.
            OSError: the connection is broken.
        """
        if not self._written:
            self._written = self._tls.write(data)
        self._flush()
        written, self._written = self._written, 0
        return written

    def unwrap(self) -> None:
        """Send TLS's closing message.

        Raises:
            OSError: the client has not sent its own, or the system does not take it now.
        """
        try:
            self._tls.unwrap()
        finally:
            self._flush()

    def _read(self, buffer: Any, nbytes: int) -> int:  # noqa: ANN401 - of a socket
        """Decrypt what is in memory; return how many bytes, or -1 if that gives no data."""
        try:
            return self._tls.read(nbytes, buffer)  # type: ignore[return-value]  # an integer where there is a buffer
        except ssl.SSLWantReadError:
            return -1

    def _fill(self) -> int:
        """Get bytes from the system; return how many."""
        try:
            data = super().recv(_FILL_BYTES)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        if data:
            self._coming.write(data)
        else:
            self._coming.write_eof()
        return len(data)

    def _tell(self) -> None:
        """Send what TLS itself has to say, if the system takes it now."""
        with suppress(OSError):
            self._flush()

    def _flush(self) -> None:
        """Give the system all that OpenSSL has written."""
        while self._unsent or self._going.pending:
            if not self._unsent:
                self._unsent = memoryview(self._going.read())
            try:
                nbytes = super().send(self._unsent)
            except BlockingIOError:
                raise ssl.SSLWantWriteError from None
            self._unsent = self._unsent[nbytes:]
