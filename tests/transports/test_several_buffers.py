"""Many small tensors over a real socket: one read fills several, and what is around them stays correct."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import NEED_DATA, EndOfMessage, Tensor, TensorReceived, encode_request, request_decoder
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import RequestHead, ServerConnection
from streamcodec.transports import aio, sync

COUNT = 500
ARRAYS = [np.full(700, index, "<f4") for index in range(COUNT)]
MESSAGE = encode_request([Tensor(name=f"t{index}", array=array) for index, array in enumerate(ARRAYS)])
FIELDS = "".join(f"{name}: {value}\r\n" for name, value in MESSAGE.headers)
HEAD = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n{FIELDS}\r\n".encode()
BODY = b"".join(MESSAGE.buffers)
REQUEST = HEAD + BODY


class CountingSocket(socket.socket):
    """Counts the calls that receive."""

    calls = 0

    def recv_into(self, *arguments: Any) -> int:  # noqa: ANN401 - typeshed's own
        self.calls += 1
        return super().recv_into(*arguments)

    def recvmsg_into(self, *arguments: Any) -> tuple[int, list[Any], int, Any]:  # noqa: ANN401 - typeshed's own
        self.calls += 1
        return super().recvmsg_into(*arguments)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, CountingSocket]]:
    """Two ends whose buffers hold a whole message, so that how many reads there are is not a matter of chance."""
    left, right = socket.socketpair()
    left.settimeout(60)
    right.settimeout(60)
    counting = CountingSocket(fileno=right.detach())
    counting.settimeout(60)
    with left, counting:
        yield left, counting


def take(event: object, connection: ServerConnection, arrays: list[Any]) -> bool:
    """Do what an owner does with an event; True at the end of a request."""
    match event:
        case RequestHead():
            length = header_length_of(event.fields)
            connection.receive_body(request_decoder(header_length=length, body_length=event.body_length))
        case TensorReceived():
            arrays.append(event.array)
        case EndOfMessage():
            connection.send_response(200)
            return True
        case _:
            pass
    return False


def check(arrays: list[Any], requests: int) -> None:
    assert len(arrays) == COUNT * requests
    for index, array in enumerate(arrays):
        np.testing.assert_array_equal(array, ARRAYS[index % COUNT], strict=True)


def test_500_tensors_come_in_a_handful_of_calls(pair: tuple[socket.socket, CountingSocket]) -> None:
    left, right = pair
    connection, calls = ServerConnection(), list[int]()
    arrays: list[Any] = []
    while min(calls, default=COUNT) > 30 and len(calls) < 10:
        # All of it is there before the first read, as far as the system keeps so much and the sender has the time.
        sender = threading.Thread(target=left.sendall, args=(REQUEST,))
        sender.start()
        before = right.calls
        while not take(sync.next_event(right, connection), connection, arrays):
            pass
        sender.join()
        calls.append(right.calls - before)
    check(arrays, len(calls))
    print(f"receive calls for {COUNT} tensors of {ARRAYS[0].nbytes} bytes: {calls}")  # noqa: T201 - a figure
    assert min(calls) <= 30


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_same_with_an_event_loop(pair: tuple[socket.socket, CountingSocket], backend: str) -> None:
    left, right = pair
    right.setblocking(False)
    connection = ServerConnection()
    arrays: list[Any] = []

    async def main() -> None:
        while not take(await aio.next_event(right, connection, timeout=60), connection, arrays):
            pass

    sender = threading.Thread(target=left.sendall, args=(REQUEST,))
    sender.start()
    anyio.run(main, backend=backend)
    sender.join()
    check(arrays, 1)


def test_requests_that_follow_each_other_at_once_are_not_mixed_up(pair: tuple[socket.socket, CountingSocket]) -> None:
    left, right = pair
    connection = ServerConnection()
    arrays: list[Any] = []
    sender = threading.Thread(target=left.sendall, args=(REQUEST * 3,))
    sender.start()
    for _ in range(3):
        while not take(sync.next_event(right, connection), connection, arrays):
            pass
    sender.join()
    check(arrays, 3)
    assert connection.next_event() is NEED_DATA
