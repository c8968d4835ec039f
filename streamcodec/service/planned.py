"""Planned: receives a body whose JSON header is known by its text, and calls the model with it.

The ordinary way finds out what a body means while it arrives: a decoder reads the header, checks it, and places one
tensor after the other. Here a `Plan` says all of this before: how long the header is, and which tensors follow. So each
tensor has its memory from the beginning, and a byte of the body only has to be counted.

A body is received in this way only if nothing in it can be wrong: its length is that of the plan, its header has been
compared, its datatypes allow any bytes, and its tensors are placed in new memory or in the pool. Only the connection
can end too early, and the connection reports that.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from streamcodec.engine.decoder import LONG_TARGET_BYTES, Buffer
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.events import NEED_DATA, EndOfMessage, NeedData
from streamcodec.engine.placement import Place, scratch_bytes
from streamcodec.formats.v2.model import RequestHeader

_MAX_TARGETS: Final = 64
"""Pieces of memory for one read: as many as a decoder gives."""


class PlannedReceiver:
    """Takes a body with a known header. It is a `Receiver`, as a `Decoder` is, but never paused, and has one event.

    Attributes:
        arrays: of the tensors, by name; the values are there when the body is complete.
        offset: bytes of the body taken so far.
    """

    __slots__ = ("_filled", "_has_ended", "_index", "_length", "_targets", "arrays", "offset")

    def __init__(self, header: RequestHeader, header_length: int, place: Place) -> None:
        """Take memory for the tensors.

        Args:
            header: of the body.
            header_length: bytes before the first tensor, which have been compared.
            place: gives each tensor one new array.

        Raises:
            OutOfMemoryError: there is none.
        """
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._targets = [scratch_bytes(header_length)]
        for spec in header.tensors:
            slab = next(place(spec).slabs(spec))
            self.arrays[spec.name] = cast("np.ndarray[Any, Any]", slab.array)
            if slab.buffer:
                self._targets.append(slab.buffer)
        self._length = sum(map(len, self._targets))
        self._index = self._filled = 0
        self.offset: int = 0
        self._has_ended = False

    @property
    def needs_data(self) -> bool:
        """Whether bytes are missing."""
        return self.offset < self._length

    @property
    def is_complete(self) -> bool:
        """Whether the body has arrived."""
        return self.offset == self._length

    is_paused = False
    held_bytes = 0

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return the memory of the tensor that is being filled; see `Decoder.get_buffer`.

        Raises:
            LocalProtocolError: the body is complete.
        """
        if self._index == len(self._targets):
            msg = "the body is complete"
            raise LocalProtocolError(msg)
        return self._targets[self._index][self._filled :]

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return that memory, and the memory that follows it; see `Decoder.get_buffers`."""
        first = self.get_buffer(sizehint)
        if len(first) > LONG_TARGET_BYTES:
            return [first]
        return [first, *self._targets[self._index + 1 : self._index + _MAX_TARGETS]]

    def buffer_updated(self, nbytes: int) -> None:
        """Report that bytes were written there; see `Decoder.buffer_updated`."""
        self.offset += nbytes
        filled = self._filled + nbytes
        while self._index < len(self._targets) and filled >= len(self._targets[self._index]):
            filled -= len(self._targets[self._index])
            self._index += 1
        self._filled = filled

    def feed(self, chunk: Buffer) -> int:
        """Copy bytes to where they belong; see `Decoder.feed`."""
        source = memoryview(chunk)
        taken = 0
        while taken < len(source) and self.needs_data:
            target = self.get_buffer()
            count = min(len(target), len(source) - taken)
            target[:count] = source[taken : taken + count]
            self.buffer_updated(count)
            taken += count
        return taken

    def receive_eof(self) -> None:
        """Do nothing: the connection reports a body that ends too early."""

    def work(self) -> None:
        """Do nothing: there is no work."""

    def next_event(self) -> EndOfMessage | NeedData:
        """Return the end of the message when it has come.

        Raises:
            LocalProtocolError: it has been returned already.
        """
        if self.needs_data:
            return NEED_DATA
        if self._has_ended:
            msg = "the message is complete"
            raise LocalProtocolError(msg)
        self._has_ended = True
        return EndOfMessage(nbytes=self.offset)
