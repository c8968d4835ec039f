"""Vectors: a message on its way into the system, which may take any part of what it is offered.

A message is a list of parts, and most are there already: those go out as many at a time as one call takes. A part that
is `Rows` is made while it is sent, window by window, and its windows may share their memory; so each is sent before the
next is asked for, and so is each buffer of any iterable that is not a list or tuple.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import chain, islice
from typing import Final

import anyio

from streamcodec.engine.message import Part
from streamcodec.engine.rows import Rows, RowWriter, row_buffers

Parts = Iterable[Part] | AsyncIterable[bytes | memoryview]
"""What can be sent. Only asynchronous senders take an asynchronous iterable, or `Rows` of one."""

_MAX_VECTORS: Final = 512
"""At once; every system allows this many (Linux 1024)."""

_SLICE_BYTES: Final = 256 << 10
"""Given to a transport at once; of that, it copies what the system does not take."""

_JOINED_BYTES: Final = 16 << 10
"""Buffers that are no larger together are joined: a copy costs less than a call of the system."""


class SendQueue:
    """What has not been sent yet. Nothing is joined or copied, and nothing is asked for before it can be sent."""

    def __init__(self, parts: Iterable[Part]) -> None:
        """Queue the parts, leaving out empty ones."""
        self._batches = batches(parts)
        self._views: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        """Whether something is left to be sent; this asks for it, so it raises what the source of a part raises."""
        if not self._views:
            self._views.extend(next(self._batches, ()))
        return bool(self._views)

    def vectors(self) -> list[memoryview]:
        """Return the next buffers, as many as one call may take."""
        return list(islice(self._views, _MAX_VECTORS))

    def sent(self, nbytes: int) -> None:
        """Drop what the system has taken."""
        while nbytes and nbytes >= len(self._views[0]):
            nbytes -= len(self._views.popleft())
        if nbytes:
            self._views[0] = self._views[0][nbytes:]

    def rest(self) -> list[memoryview]:
        """Return all that is left, for a queue that holds no `Rows`."""
        return [*self._views, *chain.from_iterable(self._batches)]

    def clear(self) -> None:
        """Drop everything; what has not been asked for will not be."""
        self._views.clear()
        self._batches = iter(())


def batches(parts: Iterable[Part]) -> Iterator[list[memoryview]]:
    """Yield what may be sent at once; each batch is to be used up before the next is asked for. None is empty.

    Raises:
        LocalProtocolError: windows are not what was declared, or are asynchronous.
    """
    for run in _runs(parts):
        if not isinstance(run, Rows):
            yield run
            continue
        for view in row_buffers(run):
            yield [view]


async def async_batches(parts: Parts) -> AsyncGenerator[list[memoryview], None]:
    """Yield the same for parts of which some come asynchronously."""
    if isinstance(parts, AsyncIterable):
        async for buffer in parts:
            if buffer:
                yield [memoryview(buffer)]
        return
    for run in _runs(parts):
        if isinstance(run, Rows):
            async with aclosing(_async_rows(run)) as views:
                async for view in views:
                    yield [view]
        else:
            yield run


async def _async_rows(rows: Rows) -> AsyncGenerator[memoryview, None]:
    """Yield the bytes of a tensor window by window, however they come."""
    windows = rows.windows
    if not rows.is_asynchronous:
        for view in row_buffers(rows):
            yield view
            await anyio.lowlevel.checkpoint()  # to make a window takes time, even where to send it takes none
        return
    writer = RowWriter(rows)
    async with _closing(windows):
        async for window in windows:
            if view := writer.write(window):
                yield view
    if last := writer.finish():
        yield memoryview(last)


@asynccontextmanager
async def _closing(windows: object) -> AsyncIterator[None]:
    """Close a generator in any case: the garbage collector would have nobody to wait for it."""
    try:
        yield
    finally:
        if isinstance(windows, AsyncGenerator):
            await windows.aclose()


def _runs(parts: Iterable[Part]) -> Iterator[list[memoryview] | Rows]:
    """Keep together what is there already."""
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
