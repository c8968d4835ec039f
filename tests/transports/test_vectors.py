"""What is asked for when, and what is offered to the system at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import LocalProtocolError, Rows
from streamcodec.engine.message import Part
from streamcodec.transports.sockets.vectors import PIECE_BYTES, Parts, SendQueue, async_batches, batches, copied_pieces

Array = np.ndarray[Any, Any]

ROWS = np.arange(12, dtype=np.uint8).reshape(4, 3)


class Source:
    """Yields windows of given sizes, all in one memory, and keeps count of them."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.asked = 0
        self.is_closed = False

    def __iter__(self) -> Iterator[Array]:
        memory, start = np.empty_like(ROWS), 0
        for size in self.sizes:
            self.asked += 1
            memory[:size] = ROWS[start : start + size]
            start += size
            yield memory[:size]

    async def generate(self) -> AsyncIterator[Array]:
        try:
            for window in self:
                yield window
        finally:
            self.is_closed = True


def gather(parts: Parts) -> list[list[bytes]]:
    """Go through the batches asynchronously."""

    async def main() -> list[list[bytes]]:
        return [[bytes(view) for view in batch] async for batch in async_batches(parts)]

    return anyio.run(main)


def ways(make: Callable[[], list[Part]]) -> list[list[list[bytes]]]:
    """Go through the batches of the same parts in both ways."""
    return [[[bytes(view) for view in batch] for batch in batches(make())], gather(make())]


def test_what_is_there_goes_together_and_windows_go_alone() -> None:
    def make() -> list[Part]:
        return [b"a", b"", memoryview(b"b"), Rows("UINT8", (4, 3), Source(1, 0, 2, 1)), b"", b"c", b"d"]

    expected = [[b"a", b"b"], [b"\0\1\2"], [b"\3\4\5\6\7\x08"], [b"\t\n"], [b"\x0b"], [b"c", b"d"]]
    assert ways(make) == [expected, expected]


def test_the_last_byte_comes_after_the_end_of_its_source() -> None:
    source = Source(4)
    coming = batches([Rows("UINT8", (4, 3), source)])
    assert bytes(next(coming)[0]) == ROWS.tobytes()[:-1]
    assert [bytes(view) for view in next(coming)] == [b"\x0b"]
    assert not list(coming)
    too_many = batches([Rows("UINT8", (2, 3), Source(2, 1))])
    assert len(next(too_many)[0]) == 5
    with pytest.raises(LocalProtocolError, match="1 rows where 0 of 2"):
        next(too_many)


def test_windows_of_a_single_byte_and_of_none() -> None:
    assert ways(lambda: [Rows("UINT8", (), [np.array(7, np.uint8)])]) == [[[b"\7"]], [[b"\7"]]]
    assert ways(lambda: [Rows("UINT8", (0, 3), [])]) == [[], []]
    assert ways(lambda: [Rows("UINT8", (0, 3), [ROWS[:0]])]) == [[], []]


def test_asynchronous_windows_are_for_asynchronous_senders() -> None:
    source = Source(2, 2)
    rows = Rows("UINT8", (4, 3), source.generate())
    with pytest.raises(LocalProtocolError, match="asynchronous"):
        list(batches([b"a", rows]))
    assert b"".join(gather([b"a", rows])[1]) == ROWS[:2].tobytes()
    assert source.is_closed


def test_an_asynchronous_source_is_closed_when_the_sender_stops() -> None:
    source = Source(2, 2)

    async def main() -> None:
        coming = async_batches([Rows("UINT8", (4, 3), source.generate())])
        await anext(coming)
        await coming.aclose()

    anyio.run(main)
    assert (source.asked, source.is_closed) == (1, True)


def test_other_iterables_are_asked_for_one_buffer_at_a_time() -> None:
    async def buffers() -> AsyncIterator[bytes]:
        for buffer in (b"a", b"", b"b"):
            yield buffer

    assert gather(buffers()) == [[b"a"], [b"b"]]
    assert [len(batch) for batch in batches(iter([b"a", b"", b"b"]))] == [1, 1]
    assert [len(batch) for batch in batches([b"x"] * 1025)] == [512, 512, 1]


def test_a_queue_asks_for_nothing_before_it_can_be_sent() -> None:
    source = Source(1, 1, 2)
    queue = SendQueue([b"head", Rows("UINT8", (4, 3), source)])
    assert queue
    assert [bytes(view) for view in queue.vectors()] == [b"head"]
    queue.sent(4)
    assert source.asked == 0
    assert queue
    queue.sent(2)
    assert source.asked == 1
    assert [bytes(view) for view in queue.vectors()] == [b"\2"]
    queue.clear()
    assert not queue
    assert source.asked == 1


def test_the_rest_of_a_queue() -> None:
    queue = SendQueue([b"ab"] * 600)
    assert queue
    queue.sent(3)
    assert b"".join(queue.rest()) == (b"ab" * 600)[3:]


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([], []),
        ([0, 0], []),
        ([1, 2, 3], [6]),
        ([PIECE_BYTES], [PIECE_BYTES]),
        ([1, PIECE_BYTES], [1, PIECE_BYTES]),
        ([PIECE_BYTES + 1, 2], [PIECE_BYTES, 3]),
        ([2 * PIECE_BYTES + 5, PIECE_BYTES - 5, 1], [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1]),
    ],
)
def test_copies_for_frameworks_are_joined_and_cut(sizes: list[int], wanted: list[int]) -> None:
    data = bytearray(np.random.default_rng(0).bytes(sum(sizes)))
    ends = np.cumsum(sizes, dtype=int)
    views = [memoryview(data)[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    found = list(copied_pieces(views))
    whole = bytes(data)
    data[:] = bytes(len(data))  # what has been handed over does not change with it
    assert list(map(len, found)) == wanted
    assert b"".join(found) == whole
