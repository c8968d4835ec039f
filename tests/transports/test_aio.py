"""The asynchronous transport on asyncio, uvloop and trio: the same as the blocking one, while other tasks run."""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import Decoder, EndOfMessage, ErrorCode, HeaderReceived, RemoteProtocolError, TensorReceived
from streamcodec.transports import aio, turns
from tests.transports.messages import BODY, Array, check, decoder
from tests.transports.test_sync import RecordingSocket

LOOPS: list[tuple[str, dict[str, Any]]] = [("asyncio", {}), ("trio", {})]
if importlib.util.find_spec("uvloop"):
    LOOPS.append(("asyncio", {"use_uvloop": True}))

Pair = tuple[socket.socket, socket.socket]
Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=LOOPS, ids=["asyncio", "trio", "uvloop"][: len(LOOPS)])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a test's coroutine on each event loop; no test takes longer than 10 s."""
    backend, options = request.param

    async def bounded(main: Callable[[], Awaitable[None]]) -> None:
        with anyio.fail_after(60):
            await main()

    return lambda main: anyio.run(bounded, main, backend=backend, backend_options=options)


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    with left, right:
        yield left, right


async def collect(sock: socket.socket, timeout: float | None = None) -> dict[str, Array]:
    machine, arrays = decoder(), {}
    while not isinstance(event := await aio.next_event(sock, machine, timeout=timeout), EndOfMessage):
        if isinstance(event, TensorReceived):
            arrays[event.spec.name] = event.array
    return arrays


@pytest.mark.parametrize("piece", [1 << 20, 997])
def test_a_socket_that_gives_pieces_into_the_arrays_themselves(run: Run, pair: Pair, piece: int) -> None:
    left, right = pair

    async def main() -> None:
        with RecordingSocket(fileno=os.dup(right.fileno())) as sock:
            sock.setblocking(False)
            sock.views, sock.largest_read = [], piece
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(aio.send, left, [BODY])
                arrays = await collect(sock)
        check(arrays)
        values = arrays["values"]
        into = sum(np.shares_memory(np.frombuffer(view, np.uint8), values) for view in sock.views)
        assert into >= values.nbytes // piece + 1

    run(main)


def test_the_end_of_a_connection(run: Run, pair: Pair) -> None:
    left, right = pair
    left.send(BODY[:100])
    left.shutdown(socket.SHUT_WR)

    async def main() -> None:
        with pytest.raises(RemoteProtocolError) as caught:
            await collect(right)
        assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, 100)

    run(main)


@pytest.mark.slow
def test_time_without_a_byte_is_limited_and_time_with_bytes_is_not(run: Run, pair: Pair) -> None:
    left, right = pair

    async def trickle() -> None:
        for start in range(0, 500, 100):
            await anyio.sleep(0.1)
            left.send(BODY[start : start + 100])

    async def main() -> None:
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trickle)
            with pytest.raises(TimeoutError):
                await collect(right, timeout=0.3)
        assert time.monotonic() - began > 0.7

    run(main)


def test_a_wait_that_ends_just_after_a_read(run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the read has brought is not forgotten: the next event is there, and no more bytes can be taken before it."""
    left, right = pair
    wait_readable = anyio.wait_readable

    async def late(sock: socket.socket) -> None:
        await wait_readable(sock)
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.05)  # a slice of the timeout ends meanwhile

    monkeypatch.setattr(anyio, "wait_readable", late)
    monkeypatch.setattr(turns, "is_crowded", lambda _: True)
    monkeypatch.setattr(turns, "wait", lambda _: anyio.lowlevel.checkpoint())

    async def main() -> None:
        left.setblocking(True)
        await anyio.to_thread.run_sync(left.sendall, BODY[:1000])
        assert isinstance(await aio.next_event(right, decoder(), timeout=0.2), HeaderReceived)

    run(main)


@pytest.mark.parametrize("count", [0, 513, 2500])
def test_any_number_of_buffers_through_a_small_gap(run: Run, pair: Pair, count: int) -> None:
    left, right = pair
    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    buffers = [bytes([index % 251]) * (index * 7 % 200) for index in range(count)]
    expected = b"".join(buffers)

    async def main() -> None:
        received = bytearray()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(aio.send, left, buffers, timeout=60))
            while len(received) < len(expected):
                await anyio.wait_readable(right)
                received += right.recv(1000)
        assert received == expected

    run(main)


def test_sending_to_somebody_who_takes_nothing(run: Run, pair: Pair) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await aio.send(pair[0], [bytes(10_000_000)], timeout=0.05)

    run(main)


def test_sending_to_nobody(run: Run, pair: Pair) -> None:
    pair[1].close()

    async def main() -> None:
        with pytest.raises(BrokenPipeError):
            await aio.send(pair[0], [b"x"])

    run(main)


def test_others_get_their_turn_while_a_large_body_comes(run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticking task has a turn between any few reads of a receiver that is always ready, as its sender is."""
    left, right = pair
    reads = [0]
    read = Decoder.buffer_updated

    def noted(self: Decoder[Any], nbytes: int) -> None:
        reads[-1] += 1
        read(self, nbytes)

    monkeypatch.setattr(Decoder, "buffer_updated", noted)

    async def tick() -> None:
        while True:
            reads.append(0)
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            for _ in range(40):
                async with anyio.create_task_group() as both:
                    both.start_soon(aio.send, left, [BODY])
                    check(await collect(right))
            tasks.cancel_scope.cancel()

    run(main)
    assert max(reads) < 10 < sum(reads) / 10, "3 or 4, of the 6 that each of 40 bodies takes"


def test_connect_finds_the_address_that_answers(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def main() -> None:
            with await aio.connect("localhost", port, timeout=60) as sock:
                assert sock.getpeername()[1] == port
                assert not sock.getblocking()

        run(main)


def test_connect_to_nobody(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def main() -> None:
        with pytest.raises(ConnectionRefusedError):
            await aio.connect("127.0.0.1", port)
        with pytest.raises(OSError, match=r"."):
            await aio.connect("nobody.invalid", 80)

    run(main)


def test_connect_in_vain_takes_no_longer_than_its_timeout(run: Run) -> None:
    with socket.socket() as listener:  # a queue that is full answers nobody
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())

        async def main() -> None:
            with pytest.raises(TimeoutError):
                await aio.connect("127.0.0.1", listener.getsockname()[1], timeout=0.1)

        run(main)
        for sock in waiting:
            sock.close()
