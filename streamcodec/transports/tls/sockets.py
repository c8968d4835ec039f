"""TLS: a socket with encryption. It has the methods of a plain socket that the drivers of this package use.

The socket itself stays in this package, non-blocking, below OpenSSL. OpenSSL decrypts a record straight into the
reader's memory, and encrypts from the sender's memory. At the server's end it gets its bytes in portions, so that a
client cannot keep it in one read for ever; see `tlsreads`. This module handles the differences from a plain socket:

- Decrypted bytes may wait inside OpenSSL, because a record may be longer than the buffer. The operating system does not
  know of them. So waiting until the socket is readable could last for ever. `has_pending` tells this, and must be
  checked before each wait.
- The system may have bytes that are not data: a part of a record, or a message of TLS itself. Then a read raises
  `BlockingIOError`, as it does for a false alarm of a plain socket.
- A record has at most 16 KiB, and one read takes at most one record. Several short buffers are sent as one record. If
  the system takes only a part of a write, OpenSSL requires the same write again. Writes are short, so that other tasks
  get their turn.
- TLS has its own message for the end of a connection. If it is missing, somebody on the way may have cut the
  connection. This is an error: `ConnectionResetError`.

This module knows nothing of HTTP, of waiting, or of time. An `ssl.SSLContext` decides who is trusted.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.transports.tls.reads import BoundedTls

_RECORD_BYTES: Final = 16 << 10
"""The most that one record holds (RFC 8446, section 5.1)."""

_WRITE_BYTES: Final = 64 << 10
"""The most for one write. OpenSSL would continue until the system takes no more; with a fast peer this may never
end."""

_CUTS_ARE_ENDS: Final[int] = getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
"""An option of OpenSSL 3 that makes a cut look like an end. Python 3.11.3 and older set it in every context."""

POLLIN: Final[int] = getattr(select, "POLLIN", 1)
POLLOUT: Final[int] = getattr(select, "POLLOUT", 4)
"""Events of `select.poll`; systems without it have these numbers instead."""

CERTIFICATE_ADVICE: Final = "ssl_context.load_cert_chain() gives it one"
"""What a client can do that has to show a certificate. Programs have other advice in its place."""

_BUSY: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket:
    """A connected socket with TLS."""

    def __init__(self, sock: ssl.SSLSocket | BoundedTls) -> None:
        """Take over a socket.

        Args:
            sock: bounded, or wrapped without `suppress_ragged_eofs` and without `do_handshake_on_connect`.
        """
        self._socket = sock
        self._has_ended = False

    @classmethod
    def accepted(cls, sock: socket.socket, context: ssl.SSLContext) -> TlsSocket:
        """Start TLS on a non-blocking socket that was accepted, at the server's end; call `handshake` next.

        Args:
            sock: do not use it afterwards; if this fails, it stays as it is.
            context: says which certificate is shown, and whether clients need one.

        Raises:
            OSError: the socket is no longer connected.
        """
        return cls(BoundedTls(sock, context))

    @classmethod
    def over(cls, sock: socket.socket, context: ssl.SSLContext, server_name: str) -> TlsSocket:
        """Start TLS on a connected, non-blocking socket, at the client's end; call `handshake` next.

        Args:
            sock: closed if this fails. Do not use it afterwards in any case.
            context: decides who is trusted. Its option `OP_IGNORE_UNEXPECTED_EOF` is removed.
            server_name: the name or address for which the server's certificate must be valid.

        Raises:
            ValueError: the name is not a valid server name.
            OSError: the socket is no longer connected.
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
        """Continue the handshake, as far as possible now.

        Returns:
            The event to wait for, as in `select.poll`: `POLLIN` or `POLLOUT`; 0 when the handshake is complete.

        Raises:
            ssl.SSLError: the handshake has failed; `ssl.SSLCertVerificationError`: the server is not trusted.
            OSError: the connection is broken.
        """
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return POLLIN
        except ssl.SSLWantWriteError:
            return POLLOUT
        return 0

    @property
    def protocol(self) -> str | None:
        """The protocol that the server has chosen (ALPN), after the handshake; None if it has chosen none."""
        return self._socket.selected_alpn_protocol()

    @property
    def has_pending(self) -> bool:
        """Whether a read would return at once, although the system may not report the socket as readable."""
        return not self._has_ended and self._socket.pending() > 0

    @property
    def has_input(self) -> bool:
        """Whether bytes, the end or an error have arrived. Ask only between two messages: it may take a byte."""
        try:
            self._socket.recv(1)
        except _BUSY:
            return False
        except OSError:
            return True
        return True

    def recv_into(self, buffer: memoryview, nbytes: int) -> int:
        """Read from one record; return how many bytes, 0 at the end. After `end`, they are not decrypted.

        Raises:
            BlockingIOError: no data have arrived.
            ConnectionError: the connection is broken, or cut.
        """
        if self._has_ended:
            return socket.socket.recv_into(self._socket, buffer, nbytes)
        try:
            return self._socket.recv_into(buffer, nbytes)
        except _BUSY:
            raise BlockingIOError from None
        except BrokenPipeError:  # of OpenSSL 3.6, which answers a cut with an alert that nobody takes
            raise _cut() from None
        except ssl.SSLError as error:
            raise _broken(error) from None

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int]:
        """Read what one record holds into several buffers; return how many bytes, as the first of a tuple.

        Raises:
            BlockingIOError: no data have arrived.
            ConnectionError: the connection is broken, or cut.
        """
        total = 0
        for buffer in buffers:
            total += (nbytes := self.recv_into(buffer, len(buffer)))
            if nbytes < len(buffer) or not self.has_pending:
                break
        return (total,)

    def sendmsg(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Send from the first buffers, at most 64 KiB; return how many bytes.

        After `BlockingIOError`, the next call must begin with the same bytes.

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
        """Return the descriptor, for waiting."""
        return self._socket.fileno()

    def end(self) -> None:
        """Send TLS's closing message, if the system takes it now.

        Nothing can be sent afterwards; what is read is good for nothing but to be dropped.
        """
        self._has_ended = True
        with suppress(OSError, ValueError):  # the peer has gone, or the handshake has not ended
            self._socket.unwrap()

    def detach(self) -> socket.socket:
        """Return the plain socket, without TLS; this object is of no further use."""
        return socket.socket(fileno=self._socket.detach())

    def close(self) -> None:
        """Close the socket without TLS's closing message: our requests have explicit lengths."""
        self._socket.close()


Socket = socket.socket | TlsSocket
"""The sockets that the drivers read from and write to."""


def has_pending(sock: Socket) -> bool:
    """Tell whether a read would return at once, even if the system does not report it."""
    return isinstance(sock, TlsSocket) and sock.has_pending


def client_context(*, verify: bool | str | Path = True) -> ssl.SSLContext:
    """Return the context of a client.

    Args:
        verify: True for the certificates that the system trusts. A path for other certificates instead: a file, or a
            folder as OpenSSL uses them. False to trust every server: whoever is on the way can then read and change
            everything.

    Raises:
        LocalProtocolError: no certificates can be read from the path.
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


def _first_bytes(buffers: Sequence[bytes | memoryview]) -> memoryview | bytes:
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


def _cut() -> ConnectionResetError:
    return ConnectionResetError("the connection ended without the end of TLS (close_notify); it may have been cut")


def _broken(error: ssl.SSLError) -> ConnectionError:
    """Return the connection error for a TLS error in the middle of a connection."""
    if is_cut(error):
        return _cut()
    reason = error.reason or str(error)
    if "ALERT_CERTIFICATE_REQUIRED" in reason:
        reason += f": the server requires a certificate of the client; {CERTIFICATE_ADVICE}"
    elif "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        reason = f"the server refuses the certificate of the client: {reason}"
    return ConnectionAbortedError(f"TLS failed: {reason}")
