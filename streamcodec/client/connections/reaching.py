"""Reaching: TLS on a new connection, and helpful messages if a server cannot be reached."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from streamcodec.client.connections.address import Address
from streamcodec.client.connections.timeouts import Times
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.transports.tls.sockets import TlsSocket, is_cut

TRUST_ARGUMENT: Final = "verify=PATH"
"""How messages name the argument of clients that says whom to trust. Programs have an option in its place."""

_OTHER_NAME: Final = {62, 64}
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""

_NOT_TRUSTED: Final = {18, 19, 20, 21}
"""A certificate that is its own CA, or whose CA is unknown."""

_SPOKEN: Final = {None, "http/1.1"}
"""Permitted choices of a server (ALPN); a server that makes no choice speaks HTTP/1.1 too."""

_NOT_TLS: Final = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
"""Errors of different OpenSSL versions for a server that answers in plain HTTP."""


@contextmanager
def tls_over(sock: socket.socket, context: ssl.SSLContext, host: str) -> Iterator[TlsSocket]:
    """Start TLS on a connected socket. The body of the `with` does the handshake. The socket is closed on any failure.

    Raises:
        LocalProtocolError: the server has chosen a protocol that `ssl_context` offered and this client does not speak.
    """
    tls = TlsSocket.over(sock, context, host)
    try:
        yield tls
        _check_protocol(tls, host)
    except BaseException:
        tls.close()
        raise


def _check_protocol(tls: TlsSocket, host: str) -> None:
    if tls.protocol not in _SPOKEN:
        raise LocalProtocolError(
            f"ssl_context offers {tls.protocol!r}, {host} has chosen it, and this client speaks HTTP/1.1 only: "
            'call ssl_context.set_alpn_protocols(["http/1.1"])'
        )


@contextmanager
def reaching(address: Address, times: Times) -> Iterator[None]:
    """Add the address, and advice, to the errors of connecting.

    Raises:
        TimeoutError: the call has used all its time, or there was no connection within the connect timeout.
        ssl.SSLError: TLS has failed; `ssl.SSLCertVerificationError`: the server is not trusted.
        OSError: any other error, of the same class.
    """
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(error, address) from None
    except ssl.SSLError as error:
        raise _again(error, _tls_trouble(error, address)) from None
    except ConnectionResetError as error:
        raise _again(error, _hung_up(address)) from None
    except socket.gaierror as error:
        raise _again(error, f"the name {address.host!r} cannot be resolved: {error.strerror}") from None
    except TimeoutError:
        raise (
            times.limit.exceeded()
            if times.limit.is_over
            else TimeoutError(f"no connection to {address.place} within {times.timeout.connect} seconds")
        ) from None
    except OSError as error:
        raise _again(error, f"no connection to {address.place}: {error.strerror or error}") from None


def _again(error: OSError, text: str) -> OSError:
    """Return an error of the same class and number with a better text."""
    return type(error)(text) if error.errno is None else type(error)(error.errno, text)


def _untrusted(error: ssl.SSLCertVerificationError, address: Address) -> ssl.SSLCertVerificationError:
    """Return the error for a certificate, with advice."""
    text = f"the certificate of {address.place} is refused: {error.verify_message}"
    if error.verify_code in _OTHER_NAME:
        text += "; the URL must have the name that the certificate is for"
    elif error.verify_code in _NOT_TRUSTED:
        text += f"; for a CA of your own, {TRUST_ARGUMENT} names a file with the CA's certificate"
    refusal = ssl.SSLCertVerificationError(error.errno, text)
    refusal.verify_code, refusal.verify_message = error.verify_code, error.verify_message
    return refusal


def _hung_up(address: Address) -> str:
    return f"{address.place} has ended the connection in the handshake: does it speak TLS, in an allowed version?"


def _tls_trouble(error: ssl.SSLError, address: Address) -> str:
    """Return the message for a failed handshake."""
    if is_cut(error):
        return _hung_up(address)
    if error.reason in _NOT_TLS:
        return f"{address.place} does not speak TLS; for a plain server, the URL begins with http://"
    return f"TLS with {address.place} has failed: {error.reason or error}"
