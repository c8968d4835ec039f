"""Pieces: passes a body on in pieces, through one buffer of constant size. Sans-IO.

`Pieces` is the receiver of a body, as a decoder is. It reports each piece as a window of a UINT8 tensor, which is the
form in which `Rows` take them. As for windows, a piece is valid until `next_event` is called again, and no bytes are
taken before that. So whoever sends the pieces on decides how quickly bytes are read.

Bytes that the connection has copied from elsewhere, such as short chunks, are a piece at once. Bytes that the transport
writes into the buffer are a piece when the buffer is full, or the body ends.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Final

import numpy as np

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, EndOfMessage, NeedData, WindowReceived
from streamcodec.engine.memory.placement import uninitialised_bytes
from streamcodec.engine.receiving import Buffer
from streamcodec.engine.spec import TensorSpec

PIECE_BYTES: Final = 1 << 20
"""Size of the buffer. With 512 KiB, the guard takes a sixth more processor time for 64 MiB; with 256 KiB, a quarter."""

_UINT8: Final = DATATYPES["UINT8"]


class Pieces:
    """Passes on one body, or the rest of one.

    Attributes:
        offset: bytes taken so far.
        is_complete: whether all bytes have been taken.
    """

    def __init__(
        self,
        nbytes: int | None,
        *,
        start: int = 0,
        check: Callable[[memoryview], None] | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """Begin.

        Args:
            nbytes: bytes of the body; None if only its end will tell.
            start: bytes of the body before these, for `offset`.
            check: is given each piece before it is reported; it may raise `RemoteProtocolError` to refuse the body.
            piece_bytes: of the longest piece.
        """
        self._left = nbytes
        self._check = check
        self._memory = uninitialised_bytes(piece_bytes if nbytes is None else min(nbytes, piece_bytes))
        self._filled = 0
        self._ready = 0
        self._is_given = False
        self._has_ended = nbytes == 0
        self._failure: MessageError | None = None
        self.offset: int = start
        self._spec = TensorSpec(name="", datatype=_UINT8, shape=(nbytes or 0,), nbytes=nbytes or 0)

    @property
    def needs_data(self) -> bool:
        """Whether there is a buffer to fill."""
        return not (self.is_paused or self._has_ended or self._failure)

    @property
    def is_paused(self) -> bool:
        """Whether a piece waits to be taken, or is in use."""
        return bool(self._ready) or self._is_given

    @property
    def is_complete(self) -> bool:
        """Whether the body has ended, and all of it has been passed on."""
        return self._has_ended and not self.is_paused and self._failure is None

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return the free part of the buffer; only while `needs_data`."""
        return self._memory[self._filled :][: self._left]

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return `get_buffer()` alone."""
        return [self.get_buffer(sizehint)]

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes that were written to `get_buffer()`."""
        self._filled += nbytes
        self.offset += nbytes
        if self._left is not None:
            self._left -= nbytes
        if self._left == 0:
            self._has_ended = True
        if self._has_ended or self._filled == len(self._memory):
            self._close_piece()

    def feed(self, chunk: Buffer) -> int:
        """Copy bytes, and make a piece of them; return how many were taken."""
        source = memoryview(chunk)
        buffer = self.get_buffer()
        count = min(len(buffer), len(source))
        buffer[:count] = source[:count]
        self.buffer_updated(count)
        if not self.is_paused:
            self._close_piece()
        return count

    def work(self) -> None:
        """Do nothing: there is no work but passing on."""

    def receive_eof(self) -> None:
        """Report that no more bytes will come."""
        if self._left and self._failure is None:
            msg = f"the body ends {self._left} bytes before its last tensor"
            self._failure = RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=self.offset)
        self._has_ended = True
        if not self.is_paused:
            self._close_piece()

    def next_event(self) -> WindowReceived | EndOfMessage | NeedData:
        """Return the next piece, or the end; what was returned before is no longer in use.

        Raises:
            RemoteProtocolError: `check` has refused a piece, or the body has ended too early.
        """
        self._is_given = False
        if self._ready:
            count, self._ready = self._ready, 0
            self._filled = 0
            self._is_given = True
            array = np.frombuffer(self._memory[:count], np.uint8)
            return WindowReceived(spec=self._spec, array=array, row=self.offset - count)
        if self._failure is not None:
            raise copy(self._failure)
        return EndOfMessage(nbytes=self.offset) if self._has_ended else NEED_DATA

    def _close_piece(self) -> None:
        """Check what is in the buffer, and make it the next piece."""
        count, self._filled = self._filled, 0
        if not count or self._failure is not None:
            return
        try:
            if self._check is not None:
                self._check(self._memory[:count])
        except MessageError as failure:
            self._failure = copy(failure)
        else:
            self._ready = count
