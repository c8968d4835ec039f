"""Securing: the TLS context of a server, and the handshake at its end, for each new connection.

The context is made from files as operators have them. An error says which file is meant, and what is wrong with it.
OpenSSL itself would ask the terminal for a missing password, and names no file.

A handshake takes a signature, which with a long key is the most that one packet of a client can make the server work:
0.5 to 5 ms. So there is one step of one handshake in each turn of the event loop, in the order in which clients have
sent what it needs. Who has a connection already is answered in between.

A handshake has a time limit. Until it has ended, a connection can be made to leave like any other that has sent no
request, and costs no more memory than OpenSSL's own.

Who speaks plain HTTP is answered in plain HTTP. It is known by the first byte: that of TLS is no letter.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import Final, NoReturn

import anyio
from anyio.lowlevel import checkpoint

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.transports.tls.sockets import POLLIN, TlsSocket, is_cut

FilePath = str | Path


class ClientCertificates(Enum):
    """Whether clients have to show a certificate, by one of the authorities that the server was given."""

    NONE = "none"
    """They are not asked for one."""
    OPTIONAL = "optional"
    """One that is shown must be valid."""
    REQUIRED = "required"
    """There is no connection without one."""


def server_context(
    certfile: FilePath,
    keyfile: FilePath | None = None,
    *,
    password: str | None = None,
    ca_certs: FilePath | None = None,
    client_certificates: ClientCertificates | None = None,
) -> ssl.SSLContext:
    """Return the context of a server: TLS 1.2 and newer, and HTTP/1.1.

    Args:
        certfile: the server's certificate, and then those of its authorities, in PEM.
        keyfile: its private key, in PEM; None if it is in the same file.
        password: of the key, if it is encrypted.
        ca_certs: the authorities of clients' certificates, in PEM.
        client_certificates: whether clients have to show one; by default they have to where there are `ca_certs`.

    Raises:
        LocalProtocolError: a file cannot be read, or does not fit.
    """
    if client_certificates is None:
        client_certificates = ClientCertificates.NONE if ca_certs is None else ClientCertificates.REQUIRED
    if client_certificates is not ClientCertificates.NONE and ca_certs is None:
        msg = "clients' certificates cannot be checked without ca_certs, the certificates of their authorities"
        raise LocalProtocolError(msg)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _load_key(context, certfile, keyfile, password)
    if ca_certs is not None:
        try:
            context.load_verify_locations(ca_certs)
        except OSError as error:
            msg = f"{ca_certs}: no certificates of authorities can be read there: {error.strerror or error}"
            raise LocalProtocolError(msg) from None
    context.verify_mode = ssl.VerifyMode[f"CERT_{client_certificates.name}"]
    return context


KEY_ADVICE: Final = "keyfile names the file of the key, if it has one of its own"
"""What to do about a certificate without its key. Programs have an option of nearly that name."""


class _NoPasswordError(Exception):
    """The key is encrypted, and there is no password."""


def _load_key(context: ssl.SSLContext, certfile: FilePath, keyfile: FilePath | None, password: str | None) -> None:
    key = keyfile or certfile

    def missing() -> NoReturn:
        raise _NoPasswordError

    try:
        _readable(certfile, key)
        context.load_cert_chain(certfile, keyfile, missing if password is None else password)
    except _NoPasswordError:
        msg = f"{key}: the private key is encrypted, and there is no password for it"
        raise LocalProtocolError(msg) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            msg = f"{key}: the private key does not belong to the certificate of {certfile}"
        elif password is not None and "PEM" not in (error.reason or ""):
            msg = f"{key}: the password does not fit the private key"
        else:
            files, advice = (certfile, f"; {KEY_ADVICE}") if keyfile is None else (f"{certfile}, {keyfile}", "")
            msg = f"{files}: no certificate with its private key can be read there: both have to be PEM{advice}"
        raise LocalProtocolError(msg) from None
    except OSError as error:
        msg = f"{error.filename}: the file cannot be read: {error.strerror}"
        raise LocalProtocolError(msg) from None
    except ValueError as error:  # a password that is too long
        raise LocalProtocolError(str(error)) from None


def _readable(*paths: FilePath) -> None:
    """Raise the error that names the file, which OpenSSL's does not."""
    for path in paths:
        with Path(path).open("rb"):
            pass


logger: Final = logging.getLogger(__name__)

_HANDSHAKE: Final = 0x16
"""The first byte of TLS: the type of a record (RFC 8446, section 5.1)."""

_LINES_PER_SECOND: Final = 5
"""Lines about clients that have failed: a thousand clients shall not fill the log."""

_CAUSES: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and one is required",
    "NO_SHARED_CIPHER": "it offers no cipher that the server has",
    "UNSUPPORTED_PROTOCOL": "it offers no version of TLS that the server allows",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the server's certificate, whose authority it does not know",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust the server's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not trust the server's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it finds the server's certificate expired",
}
"""What OpenSSL's reasons mean at this end."""


class PlainHttpError(Exception):
    """A client speaks plain HTTP to a port of TLS."""


class HandshakeError(Exception):
    """There is no connection; the client has been told why, if it listens.

    Attributes:
        sock: the connection without TLS.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Give the socket back."""
        super().__init__("the handshake has failed")
        self.sock = sock


class Securing:
    """The handshakes of one server.

    Attributes:
        context: of the handshakes that begin from now on.
    """

    def __init__(self, context: ssl.SSLContext, timeout: float, complaints: Complaints) -> None:
        """Prepare.

        Args:
            context: of the server.
            timeout: seconds for a whole handshake.
            complaints: takes the lines of the log about clients.
        """
        self.context = context
        self._timeout = timeout
        self._turn = anyio.Lock()
        self._complaints = complaints

    async def secure(self, sock: socket.socket, client: str, begun: Callable[[], None]) -> TlsSocket:
        """Do the handshake on a socket that was accepted.

        Args:
            sock: non-blocking. It stays the caller's in case of `PlainHttpError` and before the first byte.
            client: its address, for the log.
            begun: called when the client has begun.

        Raises:
            PlainHttpError: the client does not speak TLS.
            HandshakeError: the handshake has failed.
            OSError: the client has gone, or says nothing, or goes on too slowly.
        """
        with anyio.move_on_after(self._timeout):
            await anyio.wait_readable(sock)
            start = sock.recv(1, socket.MSG_PEEK)
            if not start:
                msg = "the client has left before its handshake"
                raise ConnectionResetError(msg)
            if start[0] != _HANDSHAKE:
                self._complaints.add(f"{client} speaks no TLS; for this port, the URL begins with https://")
                raise PlainHttpError
            begun()
            return await self._shake(TlsSocket.accepted(sock, self.context), client)
        self._complaints.add(f"{client} has not ended its TLS handshake within {self._timeout:g} seconds")
        msg = "the client does not go on with its handshake"
        raise TimeoutError(msg)

    async def _shake(self, tls: TlsSocket, client: str) -> TlsSocket:
        try:
            while True:
                async with self._turn:
                    awaited = tls.handshake()
                    await checkpoint()
                if not awaited:
                    return tls
                await (anyio.wait_readable if awaited == POLLIN else anyio.wait_writable)(tls)
        except ssl.SSLError as error:
            if is_cut(error):
                tls.close()
                raise
            cause = _CAUSES.get(error.reason or "", error.reason or str(error))
            if isinstance(error, ssl.SSLCertVerificationError):
                cause = f"its certificate is refused: {error.verify_message}"
            self._complaints.add(f"TLS with {client} has failed: {cause}")
            raise HandshakeError(tls.detach()) from None
        except BaseException:
            tls.close()
            raise


class Complaints:
    """Lines of the log about clients: a few in a second, and how many were left out."""

    def __init__(self) -> None:
        """Begin with none."""
        self._until = 0.0
        self._count = self._left_out = 0

    def add(self, text: str) -> None:
        """Log a line, or count it."""
        now = monotonic()
        if now >= self._until:
            self._until, self._count = now + 1.0, 0
        self._count += 1
        if self._count > _LINES_PER_SECOND:
            self._left_out += 1
            return
        others = f" ({self._left_out} more such lines were left out)" if self._left_out else ""
        logger.info("%s%s", text, others)
        self._left_out = 0
