"""Vectors: cuts a message into buffers for the operating system, which may take any part of them.

A message is a list of parts, and most of them exist already. One call sends as many of these as possible. A part that
is `Rows` is made while it is sent, window by window, and its windows may share their memory. So each window is sent
before the next is requested. The same holds for each buffer of an iterable that is not a list or tuple.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import chain, islice
from typing import Final, TypeGuard

import anyio

from streamcodec.engine.memory.rows import Rows, RowWriter, row_buffers
from streamcodec.engine.message import Part

Parts = Iterable[Part] | AsyncIterable[bytes | memoryview]
"""What can be sent. Only asynchronous senders accept an asynchronous iterable, or `Rows` of one."""

_MAX_VECTORS: Final = 512
"""Buffers in one call; every system allows this many (Linux 1024)."""

_SLICE_BYTES: Final = 256 << 10
"""Given to a transport at once; of that, it copies what the system does not take."""

PIECE_BYTES: Final = 256 << 10
"""Of an answer, copied for a framework at once: more would only be memory."""

_JOINED_BYTES: Final = 16 << 10
"""Buffers that are no larger together are joined: a copy costs less than a call of the system."""


class SendQueue:
    """The unsent part of a message. Nothing is joined or copied, and nothing is requested before it can be sent."""

    def __init__(self, parts: Iterable[Part]) -> None:
        """Queue the parts, leaving out empty ones."""
        self._batches = batches(parts)
        self._views: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        """Whether something is left to send. It requests the next buffers, so it raises their source's errors."""
        if not self._views:
            self._views.extend(next(self._batches, ()))
        return bool(self._views)

    def vectors(self) -> list[memoryview]:
        """Return the next buffers, as many as one call may take."""
        return list(islice(self._views, _MAX_VECTORS))

    def sent(self, nbytes: int) -> None:
        """Drop the bytes that the system has taken."""
        while nbytes and nbytes >= len(self._views[0]):
            nbytes -= len(self._views.popleft())
        if nbytes:
            self._views[0] = self._views[0][nbytes:]

    def rest(self) -> list[memoryview]:
        """Return everything that is left, for a queue without `Rows`."""
        return [*self._views, *chain.from_iterable(self._batches)]

    def clear(self) -> None:
        """Drop everything; buffers that have not been requested will not be requested."""
        self._views.clear()
        self._batches = iter(())


def is_one_batch(parts: Sequence[Part]) -> TypeGuard[Sequence[bytes | memoryview]]:
    """Tell whether all of a message exists already, and one call can send it; no part may be empty."""
    return len(parts) <= _MAX_VECTORS and Rows not in map(type, parts) and all(parts)


def batches(parts: Iterable[Part]) -> Iterator[list[memoryview]]:
    """Yield batches of buffers that can be sent at once, never empty. Use up each batch before you ask for the next.

    Raises:
        LocalProtocolError: windows differ from the declaration, or are asynchronous.
    """
    for run in _runs(parts):
        if not isinstance(run, Rows):
            yield run
            continue
        for view in row_buffers(run):
            yield [view]


async def async_batches(parts: Parts) -> AsyncGenerator[list[memoryview], None]:
    """Yield the same for parts of which some are asynchronous."""
    if isinstance(parts, AsyncIterable):
        async for buffer in parts:
            if buffer:
                yield [memoryview(buffer)]
            await _pause()
        return
    for number, run in enumerate(_runs(parts)):
        if number:
            await _pause()
        if isinstance(run, Rows):
            async with aclosing(_async_rows(run)) as views:
                async for view in views:
                    yield [view]
        else:
            yield run


async def _async_rows(rows: Rows) -> AsyncGenerator[memoryview, None]:
    """Yield the bytes of a tensor window by window, whether the windows are asynchronous or not."""
    windows = rows.windows
    if not rows.is_asynchronous:
        for view in row_buffers(rows):
            yield view
            await anyio.lowlevel.checkpoint()  # making a window takes time, even if sending it takes none
        return
    writer = RowWriter(rows)
    try:
        async for window in windows:
            if view := writer.write(window):
                yield view
            await _pause()
    finally:
        if isinstance(windows, AsyncGenerator):  # the garbage collector could not await its end
            await windows.aclose()
    if last := writer.finish():
        yield memoryview(last)


async def _pause() -> None:
    """Leave others their turn: what is asked for the next part, and what takes it, need not wait."""
    from streamcodec.transports import turns  # noqa: PLC0415 - those who send without an event loop need none of it

    if turns.is_over(turns.LARGE):
        await turns.wait(turns.LARGE)


def _runs(parts: Iterable[Part]) -> Iterator[list[memoryview] | Rows]:
    """Group parts that exist already."""
    max_vectors = _MAX_VECTORS if isinstance(parts, list | tuple) else 1
    run: list[memoryview] = []
    for part in parts:
        if isinstance(part, Rows):
            if run:
                yield run
                run = []
            yield part
        elif len(part):
            run.append(memoryview(part))
            if len(run) == max_vectors:
                yield run
                run = []
    if run:
        yield run


def pieces(batch: list[memoryview]) -> Iterator[bytes | memoryview]:
    """Cut and join the buffers of a batch to sizes that suit a transport, or a stream."""
    joined = bytearray()
    for view in batch:
        if len(joined) + len(view) <= _JOINED_BYTES:
            joined += view
            continue
        if joined:
            yield bytes(joined)
            joined.clear()
        for start in range(0, len(view), _SLICE_BYTES):
            yield view[start : start + _SLICE_BYTES]
    if joined:
        yield bytes(joined)


def copied_pieces(views: Iterable[memoryview]) -> Iterator[bytes]:
    """Yield the bytes of views as copies, for frameworks that keep what they are given: small views together."""
    together: list[memoryview] = []
    nbytes = 0
    for view in views:
        for start in range(0, len(view), PIECE_BYTES):
            part = view[start : start + PIECE_BYTES]
            if nbytes + len(part) > PIECE_BYTES:
                yield b"".join(together)
                together, nbytes = [], 0
            together.append(part)
            nbytes += len(part)
    if together:
        yield b"".join(together)


async def async_copied_pieces(parts: Parts) -> AsyncGenerator[bytes, None]:
    """Yield the same for all parts of a message; rows are made while they are sent."""
    async with aclosing(async_batches(parts)) as coming:
        async for batch in coming:
            for piece in copied_pieces(batch):
                yield piece
