"""Certificates: an authority of our own, what it has signed, and a pair of sockets under TLS that trust it."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

import trustme

from streamcodec.transports.tls.sockets import TlsSocket

AUTHORITY = trustme.CA()


def client_side(authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    """The context of a client that trusts the authority and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


def server_side(*names: str, authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    """The context of a server with a certificate for some names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names or ("localhost", "127.0.0.1")).configure_cert(context)
    return context


def wrapped(sock: socket.socket, context: ssl.SSLContext) -> TlsSocket:
    """The server's end of a connection, before the handshake."""
    return TlsSocket(
        context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False)
    )


def tls_pair() -> tuple[TlsSocket, TlsSocket]:
    """Both ends of a connection after the handshake, the client's first; non-blocking."""
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    client, server = TlsSocket.over(left, client_side(), "localhost"), wrapped(right, server_side())
    while client.handshake() | server.handshake():
        pass
    with suppress(BlockingIOError):  # the tickets, which may come with the first answer as well
        client.recv_into(memoryview(bytearray(1)), 1)
    return client, server
