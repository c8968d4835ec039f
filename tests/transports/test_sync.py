"""The blocking transport: files, pipes and sockets, however the system cuts what it reads and sends."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    EndOfMessage,
    ErrorCode,
    RemoteProtocolError,
    Tensor,
    TensorReceived,
    encode_request,
    request_decoder,
)
from streamcodec.transports import files, source, sync
from tests.transports.messages import BODY, Array, check, decoder


def collect(next_event: Callable[[], object]) -> dict[str, Array]:
    """Take all events of a message; return its arrays."""
    arrays = {}
    while not isinstance(event := next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            arrays[event.spec.name] = event.array
    assert event.nbytes == len(BODY)
    return arrays


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.settimeout(60)
    right.settimeout(60)
    with left, right:
        yield left, right


class RecordingSocket(socket.socket):
    """Keeps the views that it was asked to fill."""

    views: list[memoryview]
    largest_read = 1 << 30

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:  # noqa: ANN401 - typeshed's own
        assert 0 < nbytes <= sync.LONG_READ_BYTES
        self.views.append(buffer)
        return super().recv_into(buffer, min(nbytes, self.largest_read), flags)


def test_a_file_in_memory() -> None:
    machine, file = decoder(), io.BytesIO(BODY + b"tail")
    check(collect(lambda: files.next_event(file, machine)))
    assert file.read() == b"tail"


@pytest.mark.parametrize("is_buffered", [True, False])
def test_a_file_on_disk_is_read_to_the_end_of_the_message_and_no_further(tmp_path: Path, is_buffered: bool) -> None:
    path = tmp_path / "message"
    path.write_bytes(BODY + b"tail")
    machine = decoder()
    with path.open("rb") if is_buffered else path.open("rb", buffering=0) as file:
        check(collect(lambda: files.next_event(file, machine)))
        assert file.read() == b"tail"


def test_a_pipe() -> None:
    reading, writing = os.pipe()
    machine = decoder()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "wb", buffering=0) as target:
        writer = threading.Thread(target=target.write, args=(BODY,))
        writer.start()
        check(collect(lambda: files.next_event(source, machine)))
        writer.join()


def test_the_end_of_a_file_that_is_too_short() -> None:
    machine, file = decoder(), io.BytesIO(BODY[:-1])
    with pytest.raises(RemoteProtocolError) as caught:
        collect(lambda: files.next_event(file, machine))
    assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, len(BODY) - 1)


@pytest.mark.parametrize("piece", [1 << 20, 4096, 997, 64])
def test_a_socket_that_gives_pieces(pair: tuple[socket.socket, socket.socket], piece: int) -> None:
    left, right = pair
    writer = threading.Thread(target=left.sendall, args=(BODY,))
    writer.start()
    with RecordingSocket(fileno=os.dup(right.fileno())) as sock:
        sock.settimeout(60)
        sock.views, sock.largest_read = [], piece
        machine = decoder()
        check(collect(lambda: sync.next_event(sock, machine)))
        assert len(sock.views) >= len(BODY) // piece
    writer.join()


def test_zero_copy(pair: tuple[socket.socket, socket.socket]) -> None:
    """The socket was given the very memory of the array that came out."""
    left, right = pair
    writer = threading.Thread(target=left.sendall, args=(BODY,))
    writer.start()
    with RecordingSocket(fileno=os.dup(right.fileno())) as sock:
        sock.settimeout(60)
        sock.views = []
        machine = decoder()
        values = collect(lambda: sync.next_event(sock, machine))["values"]
        shared = [view for view in sock.views if np.shares_memory(np.frombuffer(view, np.uint8), values)]
    writer.join()
    assert max(map(len, shared)) == values.nbytes
    assert values.ctypes.data % 64 == 0


def test_a_blocking_read_is_long_and_that_of_an_event_loop_is_short(pair: tuple[socket.socket, socket.socket]) -> None:
    """The room for a read is bounded in both, and only in a blocking transport is it more than `READ_BYTES`."""
    rooms: list[int] = []

    class Socket(socket.socket):
        def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:  # noqa: ANN401 - typeshed's own
            rooms.append(nbytes)
            return super().recv_into(buffer, 1, flags)

    left, right = pair
    array = np.zeros(2 * sync.LONG_READ_BYTES, np.uint8)
    message = encode_request([Tensor(name="x", array=array)])
    assert message.header_length is not None
    left.sendall(b"".join(message.buffers)[: message.header_length + 2])
    machine = request_decoder(header_length=message.header_length, body_length=message.body_length)
    machine.buffer_updated(right.recv_into(machine.get_buffer()))
    with Socket(fileno=os.dup(right.fileno())) as sock:
        sync.received(machine, sync.receive(sock, machine))
        machine.next_event()
        left.shutdown(socket.SHUT_WR)
        with pytest.raises(RemoteProtocolError):
            sync.next_event(sock, machine)
    assert rooms == [source.READ_BYTES, sync.LONG_READ_BYTES, sync.LONG_READ_BYTES]


def test_the_end_of_a_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    left.sendall(BODY[:100])
    left.shutdown(socket.SHUT_WR)
    machine = decoder()
    with pytest.raises(RemoteProtocolError) as caught:
        collect(lambda: sync.next_event(right, machine))
    assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, 100)


def test_the_sockets_own_timeout(pair: tuple[socket.socket, socket.socket]) -> None:
    _, right = pair
    right.settimeout(0.05)
    with pytest.raises(TimeoutError):
        sync.next_event(right, decoder())


@pytest.mark.parametrize("count", [0, 1, 512, 513, 2500])
@pytest.mark.parametrize("sndbuf", [None, 1])
def test_any_number_of_buffers_through_any_gap(
    pair: tuple[socket.socket, socket.socket], count: int, sndbuf: int | None
) -> None:
    """More than IOV_MAX (1024) of them, empty ones among them, taken in part."""
    left, right = pair
    if sndbuf is not None:
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
    buffers = [memoryview(bytes([index % 251]) * (index * 7 % 200)) for index in range(count)]
    sender = threading.Thread(target=sync.send, args=(left, buffers))
    sender.start()
    expected = b"".join(buffers)
    received = bytearray()
    while len(received) < len(expected):
        received += right.recv(1000)
    sender.join()
    assert received == expected


def test_sending_to_nobody(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    right.close()
    with pytest.raises(BrokenPipeError):
        sync.send(left, [b"x"])


def test_sending_to_somebody_who_takes_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    left, _ = pair
    left.settimeout(0.05)
    with pytest.raises(TimeoutError):
        sync.send(left, [bytes(10_000_000)])


def test_input_test(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    assert not sync.input_test(right)()
    left.send(b"x")
    assert sync.input_test(right)()
    right.recv(1)
    assert not sync.input_test(right)()
    left.close()
    assert sync.input_test(right)()
