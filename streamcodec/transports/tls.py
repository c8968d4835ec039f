"""TLS: a socket whose bytes are encrypted, with the methods of a plain one that the drivers of this package use.

Theory. The socket stays ours, non-blocking, below OpenSSL. OpenSSL decrypts a record straight into the memory that a
reader hands out, so TLS adds no copy of its own; and it encrypts from the memory that a sender hands in. What differs
from a plain socket, and is dealt with here:

- Bytes may have been decrypted already that nobody has read, since a record may be longer than the buffer it was to go
  to. The system knows nothing of them, so to wait until the socket is readable may be to wait for ever: `has_pending`
  says so, and comes before each wait.
- The system may have bytes that are no data: a part of a record, or a message of TLS itself. Then a read raises
  `BlockingIOError`, as it does for a false alarm of a plain socket.
- A record has 16 KiB at most, and one read takes no more. Several short buffers are sent as one record. A write of more
  than the system takes is begun in secret, and has to be repeated; so that others have their turn, it is a short one.
- The end of a connection has to be said within TLS. Without that, somebody on the way may have cut it, and it is an
  error: `ConnectionResetError`.

This room knows nothing of HTTP, of waiting, or of time. Who is to be trusted is up to an `ssl.SSLContext`.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from streamcodec.engine.errors import LocalProtocolError

_RECORD_BYTES: Final = 16 << 10
"""The most that one record holds (RFC 8446, section 5.1)."""

_WRITE_BYTES: Final = 64 << 10
"""At once. OpenSSL would go on until the system takes no more, which may never be if the peer is fast."""

_CUTS_ARE_ENDS: Final[int] = getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
"""An option of OpenSSL 3, which has a cut look like an end. Python 3.11.3 and older set it in every context."""

_BUSY: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket:
    """A connected socket under TLS."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        """Take over a socket.

        Args:
            sock: wrapped without `suppress_ragged_eofs`, and `do_handshake_on_connect`.
        """
        self._socket = sock

    @classmethod
    def over(cls, sock: socket.socket, context: ssl.SSLContext, server_name: str) -> TlsSocket:
        """Put TLS over a connected, non-blocking socket, at the client's end; `handshake` comes next.

        Args:
            sock: closed if this fails, and not to be used any more in any case.
            context: says who is trusted. Of its options, `OP_IGNORE_UNEXPECTED_EOF` is taken out.
            server_name: name or address that the server's certificate has to be for.

        Raises:
            ValueError: the name is none that can be asked for.
            OSError: the socket is not connected any more.
        """
        try:
            context.options &= ~_CUTS_ARE_ENDS
            wrapped = context.wrap_socket(
                sock, server_hostname=server_name, do_handshake_on_connect=False, suppress_ragged_eofs=False
            )
        except BaseException:
            sock.close()
            raise
        return cls(wrapped)

    def handshake(self) -> int:
        """Go on with the handshake, as far as that is possible now.

        Returns:
            What has to be waited for until it can go on, as `select.poll` has it: `POLLIN` or `POLLOUT`; 0 at its end.

        Raises:
            ssl.SSLError: the two do not come together; `ssl.SSLCertVerificationError`: the server is not trusted.
            OSError: the connection is broken.
        """
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return select.POLLIN
        except ssl.SSLWantWriteError:
            return select.POLLOUT
        return 0

    @property
    def protocol(self) -> str | None:
        """What the server has chosen of the protocols that it was offered (ALPN), after the handshake; None if none."""
        return self._socket.selected_alpn_protocol()

    @property
    def has_pending(self) -> bool:
        """Whether a read would return at once, whatever the system says of the socket."""
        return self._socket.pending() > 0

    @property
    def has_input(self) -> bool:
        """Whether bytes, the end or an error have come; asked between two messages only, as it may take a byte."""
        try:
            self._socket.recv(1)
        except _BUSY:
            return False
        except OSError:
            return True
        return True

    def recv_into(self, buffer: memoryview, nbytes: int) -> int:
        """Read from one record; return how many bytes, 0 at the end.

        Raises:
            BlockingIOError: no data has come.
            ConnectionError: the connection is broken, or cut.
        """
        try:
            return self._socket.recv_into(buffer, nbytes)
        except _BUSY:
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise _broken(error) from None

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int]:
        """Read what one record holds into several buffers; return how many bytes, as the first of a tuple.

        Raises:
            BlockingIOError: no data has come.
            ConnectionError: the connection is broken, or cut.
        """
        total = 0
        for buffer in buffers:
            total += (nbytes := self.recv_into(buffer, len(buffer)))
            if nbytes < len(buffer) or not self.has_pending:
                break
        return (total,)

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:
        """Send from the first buffers, 64 KiB at most; return how many bytes.

        After `BlockingIOError`, the next call has to begin with the same bytes.

        Raises:
            BlockingIOError: the system takes no more now.
            ConnectionError: the connection is broken.
        """
        try:
            return self._socket.send(_first_bytes(buffers))
        except _BUSY:
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise _broken(error) from None

    def fileno(self) -> int:
        """Return the descriptor, to wait for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket, without a farewell: our requests say their lengths."""
        self._socket.close()


Socket = socket.socket | TlsSocket
"""What the drivers read from and write to."""


def has_pending(sock: Socket) -> bool:
    """Tell whether a read would return at once, though the system may not know it."""
    return isinstance(sock, TlsSocket) and sock.has_pending


def client_context(*, verify: bool | str | Path = True) -> ssl.SSLContext:
    """Return the context of a client.

    Args:
        verify: True for the certificates that the system trusts; the path of a file, or a folder as OpenSSL has them,
            for those that are there instead; False to trust everybody, who may then read along and change everything.

    Raises:
        LocalProtocolError: no certificates can be read there.
    """
    try:
        context = _trusting(verify=verify)
    except OSError as error:
        msg = f"verify={str(verify)!r}: no certificates can be read there: {error.strerror or error}"
        raise LocalProtocolError(msg) from None
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _trusting(*, verify: bool | str | Path) -> ssl.SSLContext:
    if not isinstance(verify, bool):
        is_folder = Path(verify).is_dir()
        return ssl.create_default_context(cafile=None if is_folder else verify, capath=verify if is_folder else None)
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _first_bytes(buffers: Sequence[memoryview]) -> memoryview | bytes:
    """Return the first buffer, or the first ones joined if they are short: each record costs a call and 22 bytes."""
    if len(buffers) == 1 or len(buffers[0]) >= _RECORD_BYTES:
        return buffers[0][:_WRITE_BYTES]
    joined = b""
    for buffer in buffers:
        joined += buffer[: _RECORD_BYTES - len(joined)]
        if len(joined) == _RECORD_BYTES:
            break
    return joined


def is_cut(error: BaseException) -> bool:
    """Whether an error says that the connection ended without the end of TLS; before 3.11.4 it has another class."""
    return isinstance(error, ssl.SSLEOFError) or getattr(error, "reason", None) == "UNEXPECTED_EOF_WHILE_READING"


def _broken(error: ssl.SSLError) -> ConnectionError:
    """Return what an error of TLS, in the middle of a connection, comes to."""
    if is_cut(error):
        return ConnectionResetError("the connection ended without the end of TLS (close_notify); it may have been cut")
    return ConnectionAbortedError(f"TLS failed: {error.reason or error}")
