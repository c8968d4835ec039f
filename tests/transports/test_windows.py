"""Windows through the transports: whoever reads does not read on while a window is in use, and the sender waits."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import (
    Decoder,
    EndOfMessage,
    Pool,
    RequestHeader,
    Tensor,
    WindowReceived,
    Windows,
    encode_request,
    request_decoder,
)
from streamcodec.transports import aio, files, sync

VALUES = np.arange(300_000, dtype="<f4").reshape(300, 1000)
MESSAGE = encode_request([Tensor(name="x", array=VALUES)])
BODY = b"".join(MESSAGE.buffers)


def windowed(buffer_count: int = 1) -> Decoder[RequestHeader]:
    windows = Windows(max_window_bytes=30_000, buffer_count=buffer_count)
    return request_decoder(
        header_length=MESSAGE.header_length, body_length=MESSAGE.body_length, place=lambda _: windows
    )


def check(seen: list[Any]) -> None:
    assert [len(array) for array in seen] == [7] * 42 + [6]
    np.testing.assert_array_equal(np.concatenate(seen), VALUES)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.settimeout(60)
    right.settimeout(60)
    with left, right:
        yield left, right


@pytest.mark.parametrize("buffer_count", [1, 2])
def test_windows_over_a_blocking_socket(pair: tuple[socket.socket, socket.socket], buffer_count: int) -> None:
    left, right = pair
    sender = threading.Thread(target=left.sendall, args=(BODY,))
    sender.start()
    decoder, seen = windowed(buffer_count), []
    while not isinstance(event := sync.next_event(right, decoder), EndOfMessage):
        if isinstance(event, WindowReceived):
            seen.append(event.array.copy())
    sender.join()
    check(seen)


def test_windows_of_a_file() -> None:
    decoder, seen, file = windowed(), [], io.BytesIO(BODY + b"tail")
    while not isinstance(event := files.next_event(file, decoder), EndOfMessage):
        if isinstance(event, WindowReceived):
            seen.append(event.array.copy())
    check(seen)
    assert file.read() == b"tail"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_windows_with_an_event_loop(pair: tuple[socket.socket, socket.socket], backend: str) -> None:
    left, right = pair
    left.setblocking(False)
    right.setblocking(False)
    seen: list[Any] = []

    async def receive() -> None:
        decoder = windowed(2)
        while not isinstance(event := await aio.next_event(right, decoder, timeout=60), EndOfMessage):
            if isinstance(event, WindowReceived):
                seen.append(event.array.copy())

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(aio.send, left, [BODY])
            await receive()

    anyio.run(main, backend=backend)
    check(seen)


def test_a_sender_waits_for_a_slow_consumer(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    left.setblocking(False)
    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    decoder, seen, sent = windowed(), [], 0
    while not decoder.is_complete:
        with suppress(BlockingIOError):
            while sent < len(BODY):
                sent += left.send(memoryview(BODY)[sent:])
        # However often it tries, it is ahead of the consumer by what the system holds, and no more.
        assert sent - decoder.offset < 100_000
        if decoder.needs_data:
            sync.received(decoder, sync.receive(right, decoder))
        elif isinstance(event := decoder.next_event(), WindowReceived):
            seen.append(event.array.copy())
    check(seen)


def test_a_consumer_that_fails_within_a_window_leaves_memory_and_pool_whole(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    left, right = pair
    pool = Pool(min_bytes=1)
    places = {"pooled": pool}
    message = encode_request([Tensor(name="pooled", array=VALUES), Tensor(name="x", array=VALUES)])
    sender = threading.Thread(target=left.sendall, args=(b"".join(message.buffers)[: len(BODY) + 40_000],))
    sender.start()

    def consume() -> None:
        decoder = request_decoder(
            header_length=message.header_length,
            body_length=message.body_length,
            place=lambda spec: places.get(spec.name) or Windows(max_window_bytes=4000),
        )
        while True:
            if isinstance(sync.next_event(right, decoder), WindowReceived):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()
    sender.join()
    assert pool.idle_bytes == VALUES.nbytes
