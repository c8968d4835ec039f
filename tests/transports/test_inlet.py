"""Inlet: what is read beside a transport, and when the system tells of bytes."""

from __future__ import annotations

import select
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from streamcodec.transports import inlet
from streamcodec.transports.inlet import LONG_READ_BYTES, WAKING_BYTES, Inlet
from streamcodec.transports.sockets.system import new_poll
from streamcodec.transports.source import READ_BYTES
from streamcodec.transports.tls.sockets import POLLIN

MIB = 1 << 20
_on_linux = pytest.mark.skipif(sys.platform != "linux", reason="no other system does it")
_with_readv = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no readv")

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Return two connected sockets of TCP; the second is non-blocking, and its system keeps all that is sent here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * MIB)
        with socket.create_connection(listener.getsockname()) as near, listener.accept()[0] as far:
            far.setblocking(False)
            yield near, far


class Transport:
    """Tells what it stands on."""

    def __init__(self, sock: socket.socket | None, *, is_encrypted: bool = False) -> None:
        self._extra = {"socket": sock, "ssl_object": self if is_encrypted else None}

    def get_extra_info(self, name: str) -> Any:  # noqa: ANN401 - as asyncio's
        return self._extra[name]


class Memory:
    """A source that notes how much each read brings."""

    def __init__(self, nbytes: int) -> None:
        self._left = memoryview(bytearray(nbytes))
        self.reads: list[int] = []

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        assert sizehint == -1
        return self._left

    def buffer_updated(self, nbytes: int) -> None:
        self.reads.append(nbytes)
        self._left = self._left[nbytes:]


def _inlet(sock: socket.socket | None, *, is_encrypted: bool = False) -> Inlet:
    return Inlet(Transport(sock, is_encrypted=is_encrypted))  # type: ignore[arg-type] # as much of a transport as it needs


def _read(reading: Inlet, memory: Memory, most: int = MIB) -> int:
    return reading.read(memory, most)  # type: ignore[arg-type] # as much of a source as it needs


def _is_told(sock: socket.socket, seconds: float = 0.0) -> bool:
    poll = new_poll()
    poll.register(sock.fileno(), POLLIN)
    return bool(poll.poll(seconds * 1000))


def _until_unread(sock: socket.socket, nbytes: int) -> None:
    """Wait until so many bytes have come."""
    while len(sock.recv(nbytes, socket.MSG_PEEK)) < nbytes:
        select.select([sock], [], [], 0.001)


@_with_readv
def test_each_full_read_is_followed_by_a_longer_one_until_one_is_not_full(pair: Pair) -> None:
    near, far = pair
    near.sendall(bytes(3 * READ_BYTES + 100))
    _until_unread(far, 3 * READ_BYTES + 100)
    reading, memory = _inlet(far), Memory(MIB)
    assert [_read(reading, memory) for _ in range(3)] == [READ_BYTES, 2 * READ_BYTES, 100]
    near.sendall(bytes(READ_BYTES + 7))
    _until_unread(far, READ_BYTES + 7)
    assert [_read(reading, memory) for _ in range(3)] == [READ_BYTES, 7, 0]
    assert memory.reads == [READ_BYTES, 2 * READ_BYTES, 100, READ_BYTES, 7], "nothing is told where nothing has come"


@_with_readv
def test_no_read_is_longer_than_the_longest_or_than_it_may_be(pair: Pair) -> None:
    near, far = pair
    near.sendall(bytes(5 * MIB))
    _until_unread(far, 5 * MIB)
    reading, memory = _inlet(far), Memory(8 * MIB)
    while sum(memory.reads) < 4 * MIB - READ_BYTES:
        _read(reading, memory, 2 * MIB)
    assert max(memory.reads) == LONG_READ_BYTES
    assert _read(reading, memory, 1000) == 1000


@_with_readv
def test_a_read_ends_with_the_memory_of_the_source(pair: Pair) -> None:
    near, far = pair
    near.sendall(bytes(100))
    _until_unread(far, 100)
    assert _read(_inlet(far), Memory(60)) == 60


@_with_readv
def test_the_end_of_a_connection_is_left_to_the_transport(pair: Pair) -> None:
    near, far = pair
    near.shutdown(socket.SHUT_WR)
    assert _is_told(far, 60)
    memory = Memory(10)
    assert _read(_inlet(far), memory) == 0
    assert memory.reads == []


@_with_readv
def test_a_broken_connection(pair: Pair) -> None:
    near, far = pair
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    assert _is_told(far, 60)
    with pytest.raises(ConnectionResetError):
        _read(_inlet(far), Memory(10))


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_without_a_plain_socket_all_is_left_to_the_transport(pair: Pair, is_encrypted: bool) -> None:
    near, far = pair
    near.sendall(b"abc")
    _until_unread(far, 3)
    reading, memory = _inlet(far if is_encrypted else None, is_encrypted=is_encrypted), Memory(10)
    assert _read(reading, memory) == 0
    assert not reading.wake_for(MIB)
    assert not reading.wake_for(1)
    assert far.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
    assert far.recv(10) == b"abc"


@_on_linux
def test_the_system_tells_of_the_piece_and_not_before(pair: Pair) -> None:
    near, far = pair
    reading = _inlet(far)
    assert not reading.wake_for(1000)
    near.sendall(bytes(999))
    _until_unread(far, 999)
    assert not _is_told(far)
    near.sendall(b"\0")
    assert _is_told(far, 60)
    far.recv(1000)
    assert not reading.wake_for(MIB), "it was told of fewer"
    assert far.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == WAKING_BYTES
    near.sendall(b"\0")
    _until_unread(far, 1)
    assert not _is_told(far)
    assert reading.wake_for(1)
    assert _is_told(far), "of what has come before, too"
    assert not reading.wake_for(1)


@_on_linux
def test_the_system_tells_of_the_end_in_any_case(pair: Pair) -> None:
    near, far = pair
    _inlet(far).wake_for(MIB)
    near.sendall(b"\0")
    near.shutdown(socket.SHUT_WR)
    assert _is_told(far, 60)


def test_where_the_system_has_no_such_threshold_none_is_set(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlet, "_HAS_THRESHOLD", False)
    reading = _inlet(pair[1])
    assert not reading.wake_for(MIB)
    assert not reading.wake_for(1)
    assert pair[1].getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


def test_to_set_it_for_a_socket_that_has_been_closed_is_no_error(pair: Pair) -> None:
    reading = _inlet(pair[1])
    pair[1].close()
    assert not reading.wake_for(MIB)
