"""Both directions at once; what the clients' tests do not show of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import anyio
import numpy as np
import pytest

from streamcodec import NEED_DATA, Rows
from streamcodec.transports.duplex import AsyncDuplex, Duplex
from streamcodec.transports.source import READ_BYTES
from tests.transports.messages import BODY, decoder
from tests.transports.test_aio import Pair, Run, pair, run

__all__ = ["pair", "run"]  # fixtures


def test_what_is_small_goes_out_at_once_and_needs_no_task(run: Run, pair: Pair) -> None:
    left, right = pair

    async def main() -> None:
        duplex = AsyncDuplex(left, decoder(), [b"head", b"", b"body"])
        async with duplex.sending():
            assert duplex.is_sent
        assert right.recv(100) == b"headbody"

    run(main)


def test_a_peer_that_has_gone_before_anything_was_sent(run: Run, pair: Pair) -> None:
    left, right = pair
    right.close()
    duplex = Duplex(left, decoder(), [b"head"])
    with pytest.raises(Exception, match="too early"):
        duplex.next_event()
    assert isinstance(duplex.lost, BrokenPipeError)
    assert not duplex.is_sent

    async def main() -> None:
        duplex = AsyncDuplex(left, decoder(), [b"head"])
        async with duplex.sending():
            with pytest.raises(Exception, match="too early"):
                await duplex.next_event()
        assert isinstance(duplex.lost, BrokenPipeError)
        assert not duplex.is_sent

    run(main)


def _endless() -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    while True:
        yield np.zeros(1 << 16, np.uint8)


def test_what_comes_is_read_while_nothing_can_be_sent(run: Run, pair: Pair) -> None:
    """The peer takes nothing, and its message comes in pieces."""
    left, right = pair
    rows = Rows("UINT8", (1 << 40,), _endless())

    async def speak() -> None:
        for start in range(0, len(BODY), 50_000):
            await anyio.sleep(0.01)
            right.send(BODY[start : start + 50_000])

    async def main() -> None:
        duplex = AsyncDuplex(left, decoder(), [b"head", rows], read_timeout=60, write_timeout=60)
        async with anyio.create_task_group() as tasks, duplex.sending():
            tasks.start_soon(speak)
            names = [type(await duplex.next_event()).__name__ for _ in range(6)]
            duplex.stop_sending()
        assert names == ["HeaderReceived", *["TensorReceived"] * 4, "EndOfMessage"]
        assert not duplex.is_sent

    run(main)


class _Message:
    """A message of so many bytes, which are received into one piece of memory."""

    def __init__(self, nbytes: int) -> None:
        self.received = 0
        self._memory = memoryview(bytearray(nbytes))

    def next_event(self) -> object:
        return "whole" if self.received == len(self._memory) else NEED_DATA

    def receive_eof(self) -> None:
        raise AssertionError

    def get_buffer(self, _: int = -1) -> memoryview:
        return self._memory[self.received :]

    def get_buffers(self, _: int = -1) -> list[memoryview]:
        return [self.get_buffer()]

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes

    def work(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("more", [0, 1, READ_BYTES, 2 * READ_BYTES + 1])
def test_a_long_answer_that_has_come_is_waited_for_once(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    left, right = pair
    right.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    wait_readable, waits = anyio.wait_readable, []

    async def counted(sock: socket.socket) -> None:
        waits.append(sock)
        await wait_readable(sock)

    monkeypatch.setattr(anyio, "wait_readable", counted)
    nbytes = READ_BYTES + more

    async def main() -> None:
        for begun in (nbytes, READ_BYTES):  # all has come at once, and then the rest comes late
            waits.clear()
            source = _Message(nbytes)
            duplex = AsyncDuplex(left, source, [b"head"], read_timeout=60)
            assert duplex.send_at_once()
            assert right.send(bytes(begun)) == begun
            await duplex.move()
            assert source.received == READ_BYTES
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_send_late, right, nbytes - begun)
                assert await duplex.next_event() == "whole"
            assert len(waits) == 1 + (begun < nbytes)

    run(main)


async def _send_late(sock: socket.socket, nbytes: int) -> None:
    await anyio.sleep(0.01)
    assert sock.send(bytes(nbytes)) == nbytes
