"""New keys: a client of TLS 1.3 that makes its own records after the handshake, such as floods of KeyUpdate.

Python's `ssl` cannot send these messages. The handshake is OpenSSL's; what follows is made here from the secret that
OpenSSL writes to a key log (RFC 8446, sections 4.6.3, 5.2, 7.1 and 7.2).
"""

from __future__ import annotations

import hmac
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.transports.certificates import client_side

_HASHES = {32: "sha256", 48: "sha384"}
_DATA, _HANDSHAKE = b"\x17", b"\x16"


class Records:
    """Makes the records of a client."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._take()

    def data(self, data: bytes) -> bytes:
        """A record with data."""
        return self._record(data + _DATA)

    def new_keys(self, *, is_requested: bool = False) -> bytes:
        """A record that says that the next one has new keys; it may request the same of the server."""
        record = self._record(b"\x18\x00\x00\x01" + bytes([is_requested]) + _HANDSHAKE)
        self._secret = self._expand(b"traffic upd", len(self._secret))
        self._take()
        return record

    def _take(self) -> None:
        # The ciphers with SHA-384 have keys of 256 bits; AES-128 is the one with SHA-256 that OpenSSL prefers.
        key_bytes = 32 if len(self._secret) == 48 else 16
        self._cipher, self._iv, self._number = AESGCM(self._expand(b"key", key_bytes)), self._expand(b"iv", 12), 0

    def _record(self, plain: bytes) -> bytes:
        head = b"\x17\x03\x03" + struct.pack(">H", len(plain) + 16)
        nonce = (int.from_bytes(self._iv, "big") ^ self._number).to_bytes(12, "big")
        self._number += 1
        return head + self._cipher.encrypt(nonce, plain, head)

    def _expand(self, label: bytes, nbytes: int) -> bytes:
        """HKDF-Expand-Label; the results here are never longer than the hash."""
        info = struct.pack(">HB", nbytes, 6 + len(label)) + b"tls13 " + label + b"\x00\x01"
        return hmac.digest(self._secret, info, _HASHES[len(self._secret)])[:nbytes]


def forging(sock: socket.socket, goes_on: Callable[[], object]) -> tuple[socket.socket, Records]:
    """Do a client's handshake; return the connection below TLS, and what makes its next records.

    Args:
        sock: connected, non-blocking.
        goes_on: lets the server go on.
    """
    with TemporaryDirectory() as folder:
        context = client_side()
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(Path(folder, "keys"))
        client = context.wrap_socket(sock, server_hostname="localhost", do_handshake_on_connect=False)
        while not _is_over(client):
            goes_on()
        goes_on()
        lines = Path(folder, "keys").read_text().splitlines()
    secret = next(line.split()[2] for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0 "))
    return socket.socket(fileno=client.detach()), Records(bytes.fromhex(secret))


def _is_over(client: ssl.SSLSocket) -> bool:
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
        return True
    return False
