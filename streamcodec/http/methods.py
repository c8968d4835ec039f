"""Methods: what both kinds of connections take over from their receiving half, as attributes.

An attribute saves one call each time. The types are protocols because `Callable` can neither make an argument optional
nor name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from streamcodec.engine.receiving import Buffer
from streamcodec.http.connection import Incoming


class GetBuffer(Protocol):
    """See `Incoming.get_buffer`."""

    def __call__(self, sizehint: int = -1) -> memoryview:
        """Return memory for the next bytes."""
        ...


class GetBuffers(Protocol):
    """See `Incoming.get_buffers`."""

    def __call__(self, sizehint: int = -1) -> list[memoryview]:
        """Return that memory, and the memory that is known to follow it."""
        ...


class BufferUpdated(Protocol):
    """See `Incoming.buffer_updated`."""

    def __call__(self, nbytes: int) -> None:
        """Report that bytes were written there."""
        ...


class Feed(Protocol):
    """See `Incoming.feed`."""

    def __call__(self, chunk: Buffer) -> int:
        """Copy bytes to where they belong; return how many were taken."""
        ...


class Receives:
    """Whoever takes bytes through the receiving half of a connection."""

    def __init__(self, incoming: Incoming) -> None:
        """Take over its methods."""
        self.incoming: Incoming = incoming
        self.get_buffer: GetBuffer = incoming.get_buffer
        self.get_buffers: GetBuffers = incoming.get_buffers
        self.buffer_updated: BufferUpdated = incoming.buffer_updated
        self.feed: Feed = incoming.feed
        self.receive_eof: Callable[[], None] = incoming.receive_eof
        self.work: Callable[[], bool] = incoming.work

    @property
    def inflates(self) -> bool:
        """Whether many compressed bytes wait; see `Incoming.inflates`."""
        return self.incoming.inflates
