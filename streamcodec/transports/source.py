"""Event sources: what every transport drives, whoever has written it.

An event source is a `Decoder`, a `ServerConnection`, a `ClientConnection`, or whatever has the same methods: bytes go
in, into memory that it hands out, and events come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

from streamcodec.engine.events import NeedData, NeedTurn
from streamcodec.engine.message import Part

EventT = TypeVar("EventT")
EventT_co = TypeVar("EventT_co", covariant=True)

READ_BYTES: Final = 64 << 10
"""At once into a long buffer, though it takes more. A read holds the socket, and what comes meanwhile piles up outside
the processor's cache: over loopback, a large tensor came half as fast in reads that took all there was."""


class EventSource(Protocol[EventT_co]):
    """Bytes in, events out."""

    def next_event(self) -> EventT_co | NeedData | NeedTurn:
        """Return the next event, or `NEED_DATA`; or `NEED_TURN`, if the source is paced."""
        ...

    def receive_eof(self) -> None:
        """Tell that no more bytes will come."""
        ...

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return memory for the next bytes, never empty."""
        ...

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return that memory and what is known to follow it, to be filled in this order."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Tell that bytes were written there."""
        ...

    def work(self) -> object:
        """Do a bounded piece of the work that needs no bytes, if there is any; true if there is certainly more.

        Where a source has `inflates`, and that is true, it may be called by a thread.
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
