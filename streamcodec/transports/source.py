"""Event sources: the objects that every transport drives.

An event source is a `Decoder`, a `ServerConnection`, a `ClientConnection`, or any object with the same methods. It
provides memory, bytes are written there, and events come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

from streamcodec.engine.events import NeedData, NeedTurn
from streamcodec.engine.message import Part

EventT = TypeVar("EventT")
EventT_co = TypeVar("EventT_co", covariant=True)

READ_BYTES: Final = 72 << 10
"""Size of one read into a long buffer. A longer read holds the socket longer, and bytes that arrive meanwhile fall out
of the processor's cache. Over loopback, a large tensor took twice as long in reads without this limit. It is that of
the scratch memory of a connection, so that a tensor of 64 KiB comes with its head in one read."""


class EventSource(Protocol[EventT_co]):
    """Bytes in, events out."""

    def next_event(self) -> EventT_co | NeedData | NeedTurn:
        """Return the next event, or `NEED_DATA`; or `NEED_TURN`, if the source is paced."""
        ...

    def receive_eof(self) -> None:
        """Report that no more bytes will come."""
        ...

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return memory for the next bytes, never empty."""
        ...

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return that memory, and the memory that is known to follow it, to be filled in this order."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Report that bytes were written there."""
        ...

    def work(self) -> object:
        """Do a bounded piece of the work that needs no bytes, if there is any; true if there is certainly more.

        If a source has `inflates`, and it is true, a thread may call this.
        """
        ...


class Encoded(Protocol):
    """A message of any format, as its encoder returns it."""

    @property
    def parts(self) -> Sequence[Part]:
        """The message in order; `Rows` in it are made while it is sent."""
        ...

    @property
    def buffers(self) -> Iterable[bytes | memoryview]:
        """The same, with the windows of `Rows` in their place."""
        ...
