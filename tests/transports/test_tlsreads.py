"""Bounded TLS: what a client can make one read do, and that all else is as with `ssl.SSLSocket`."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import anyio
import pytest

from streamcodec.transports.tls.sockets import TlsSocket
from streamcodec.transports.tls.transport import TlsTransport
from tests.transports.certificates import client_side, server_side
from tests.transports.newkeys import Records, forging
from tests.waiting import SECONDS

KIB = 1 << 10


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, TlsSocket]]:
    """The client's socket below TLS, and the server's end before the handshake; both non-blocking."""
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    server = TlsSocket.accepted(right, server_side())
    yield left, server
    left.close()
    server.close()


@pytest.fixture
def pair(ends: tuple[socket.socket, TlsSocket]) -> Iterator[tuple[TlsSocket, TlsSocket]]:
    """Both ends after the handshake, the client's first."""
    client = TlsSocket.over(ends[0], client_side(), "localhost")
    while client.handshake() | ends[1].handshake():
        pass
    with suppress(BlockingIOError):  # the tickets
        client.recv_into(memoryview(bytearray(1)), 1)
    yield client, ends[1]
    client.close()


@pytest.fixture
def forged(ends: tuple[socket.socket, TlsSocket]) -> Iterator[tuple[socket.socket, Records, TlsSocket]]:
    """A client that makes its own records, and the server's end."""
    below, records = forging(ends[0], ends[1].handshake)
    yield below, records, ends[1]
    below.close()


def _read(server: TlsSocket, nbytes: int = 64 * KIB) -> bytes:
    buffer = memoryview(bytearray(nbytes))
    return bytes(buffer[: server.recv_into(buffer, nbytes)])


# What a client can make a read do


@pytest.mark.parametrize("is_requested", [False, True])
def test_new_keys_without_data_end_the_connection(
    forged: tuple[socket.socket, Records, TlsSocket], is_requested: bool
) -> None:
    """Each read takes 33 KiB of them, and the second is the last. If they have to be answered, the first is.

    `ssl.SSLSocket` takes them all in one read.
    """
    below, records, server = forged
    below.send(b"".join(records.new_keys(is_requested=is_requested) for _ in range(4_000)))
    for _ in range(0 if is_requested else 1):
        with pytest.raises(BlockingIOError):
            _read(server)
    with pytest.raises(ConnectionAbortedError, match="messages of TLS itself and no data"):
        _read(server)


def test_new_keys_as_often_as_data(forged: tuple[socket.socket, Records, TlsSocket]) -> None:
    """One for each byte of data is far more than anybody needs, and is no reason to end the connection."""
    below, records, server = forged
    for _ in range(20):
        below.send(b"".join(records.new_keys() + records.data(b"x") for _ in range(200)))
        received = b""
        while len(received) < 200:
            with suppress(BlockingIOError):
                received += _read(server)
        assert received == b"x" * 200


def test_new_keys_that_are_requested_are_given(forged: tuple[socket.socket, Records, TlsSocket]) -> None:
    below, records, server = forged
    with suppress(BlockingIOError):
        while below.recv(64 * KIB):  # the tickets
            pass
    below.send(records.new_keys(is_requested=True))
    with pytest.raises(BlockingIOError):
        _read(server)
    server.sendmsg([memoryview(b"hello")])
    assert len(below.recv(64 * KIB)) == 27 + len(b"hello") + 22, "the new key comes first"


# What is as with `ssl.SSLSocket`


def test_a_read_takes_one_record_and_says_what_is_pending(pair: tuple[TlsSocket, TlsSocket]) -> None:
    client, server = pair
    assert not server.has_pending
    assert not server.has_input
    for _ in range(2):
        client.sendmsg([memoryview(bytes(16 * KIB))])
    for is_first in (True, False):
        assert [_read(server, 10 * KIB), _read(server)] == [bytes(10 * KIB), bytes(6 * KIB)]
        assert server.has_pending == is_first, "two records are taken from the system at once"
    with pytest.raises(BlockingIOError):
        _read(server)
    assert server.protocol is None


def test_a_record_in_pieces(ends: tuple[socket.socket, TlsSocket]) -> None:
    below, records = forging(ends[0], ends[1].handshake)
    with below:
        record = records.data(b"some data")
        for byte in record[:-1]:
            below.send(bytes([byte]))
            with pytest.raises(BlockingIOError):
                _read(ends[1])
            assert not ends[1].has_pending, "the system will say when there is more"
        below.send(record[-1:] + records.data(b"more"))
        assert ends[1].has_input  # it takes a byte
        assert [_read(ends[1]), _read(ends[1])] == [b"ome data", b"more"]


def test_what_the_system_does_not_take_is_sent_later(pair: tuple[TlsSocket, TlsSocket]) -> None:
    client, server = pair
    data = bytes(range(256)) * 16 * KIB
    to_send, received = memoryview(data), b""
    while to_send:
        try:
            to_send = to_send[server.sendmsg([to_send]) :]
        except BlockingIOError:
            assert not select.select([], [server], [], 0)[1]
            with suppress(BlockingIOError):
                while piece := _read(client):
                    received += piece
    server.end()
    while piece := _read(client):
        received += piece
    assert received == data


def test_the_end_and_what_is_dropped_after_it(pair: tuple[TlsSocket, TlsSocket]) -> None:
    client, server = pair
    client.sendmsg([memoryview(b"the last")])
    client.end()
    assert [_read(server), _read(server)] == [b"the last", b""]
    server.end()
    assert not server.has_pending


def test_a_cut_is_no_end(pair: tuple[TlsSocket, TlsSocket]) -> None:
    client, server = pair
    client.sendmsg([memoryview(b"some")])
    client.close()
    assert _read(server) == b"some"
    for _ in range(2):
        with pytest.raises(ConnectionResetError, match="cut"):
            _read(server)


def test_a_cut_in_the_handshake(ends: tuple[socket.socket, TlsSocket]) -> None:
    ends[0].close()
    with pytest.raises((ssl.SSLEOFError, ssl.SSLError)):
        ends[1].handshake()


def test_forged_records_are_answered_with_an_alert(forged: tuple[socket.socket, Records, TlsSocket]) -> None:
    below, _, server = forged
    with suppress(BlockingIOError):
        while below.recv(64 * KIB):  # the tickets
            pass
    below.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(ConnectionAbortedError, match="TLS failed"):
        _read(server)
    assert len(below.recv(64 * KIB)) == 24


def test_a_handshake_that_the_system_does_not_take(ends: tuple[socket.socket, TlsSocket]) -> None:
    """The client does not read, and the system has no room for the server's first messages."""
    below, server = ends
    filler = socket.socket(fileno=socket.dup(server.fileno()))
    with filler, suppress(BlockingIOError):
        while True:
            filler.send(bytes(64 * KIB))
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side().wrap_bio(coming, going, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    below.send(going.read())
    assert server.handshake() == select.POLLOUT
    with suppress(BlockingIOError):
        while below.recv(1 << 20):
            pass
    assert server.handshake() == select.POLLIN


# With an event loop


class _Received(asyncio.BufferedProtocol):
    """Takes a few bytes at a time, and how the connection has ended."""

    def __init__(self) -> None:
        self._buffer = bytearray(3)
        self.data = b""
        self.error: Exception | None = None
        self.ended = anyio.Event()

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.ended.set()


@pytest.mark.parametrize("has_uvloop", [False, True])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_reset_that_comes_with_bytes_before_it(
    pair: tuple[TlsSocket, TlsSocket], is_whole: bool, has_uvloop: bool
) -> None:
    client, server = pair

    async def receive() -> _Received:
        protocol = _Received()
        TlsTransport(server, protocol).resume_reading()
        server.sendmsg([b"unread"])
        if is_whole:
            client.sendmsg([b"12"])
        else:
            os.write(client.fileno(), b"\x17\x03\x03\x00\x40the beginning of a record")
        client.close()  # with an unread record, it is a reset
        with anyio.fail_after(SECONDS):
            await protocol.ended.wait()
        return protocol

    protocol = anyio.run(receive, backend_options={"use_uvloop": has_uvloop})
    assert protocol.data == (b"12" if is_whole else b"")
    assert isinstance(protocol.error, ConnectionResetError)
