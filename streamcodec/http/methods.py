"""Methods: the types of what a connection has from its receiving half as attributes, since that saves a call each time.

They are protocols and no `Callable`, which says neither that an argument may be left out nor what it is called.
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
        """Return that memory and what is known to follow it."""
        ...


class BufferUpdated(Protocol):
    """See `Incoming.buffer_updated`."""

    def __call__(self, nbytes: int) -> None:
        """Tell that bytes were written there."""
        ...


class Feed(Protocol):
    """See `Incoming.feed`."""

    def __call__(self, chunk: Buffer) -> int:
        """Copy bytes to where they belong; return how many were taken."""
        ...
