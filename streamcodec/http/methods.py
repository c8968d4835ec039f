"""Methods: the types of the methods that a connection takes over from its receiving half as attributes.

An attribute saves one call each time. The types are protocols because `Callable` can neither make an argument optional
nor name it.
"""

from __future__ import annotations

from typing import Protocol

from streamcodec.engine.decoder import Buffer


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
