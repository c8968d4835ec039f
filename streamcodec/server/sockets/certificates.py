"""Certificates: the TLS context of a server, from files as operators have them.

An error says which file is meant, and what is wrong with it. OpenSSL itself would ask the terminal for a missing
password, and names no file.
"""

from __future__ import annotations

import ssl
from enum import Enum
from pathlib import Path
from typing import NoReturn

from streamcodec.engine.errors import LocalProtocolError

FilePath = str | Path


class ClientCertificates(Enum):
    """Whether clients have to show a certificate, by one of the authorities that the server was given."""

    NONE = "none"
    """They are not asked for one."""
    OPTIONAL = "optional"
    """One that is shown must be valid."""
    REQUIRED = "required"
    """There is no connection without one."""


_MODES = {
    ClientCertificates.NONE: ssl.CERT_NONE,
    ClientCertificates.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}


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
    context.verify_mode = _MODES[client_certificates]
    return context


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
            msg = f"{certfile}, {key}: no certificate with its private key can be read there: both have to be PEM"
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
