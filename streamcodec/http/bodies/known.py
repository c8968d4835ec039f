"""Known: a body in which nothing can be wrong. Its bytes go to given memory, and are only counted.

Such a body has a known length, is not compressed, and any bytes are valid in it. So it needs neither a framing nor a
receiver that understands it: a `KnownBody` replaces a `Body` together with its receiver. Only the connection can end
too early.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.receiving import NEED_DATA, EndOfMessage, NeedData

_MAX_TARGETS: Final = 64
"""Pieces of memory for one read: as many as a decoder gives."""

_NOTHING: Final = memoryview(b"")


def truncated(offset: int) -> RemoteProtocolError:
    """Return the error for a connection that has ended within a body, after `offset` bytes of it."""
    msg = "the connection ended in the middle of the body"
    return RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=offset)


class KnownBody:
    """One body, or the rest of one, on its way to memory. For its methods see `Body`.

    Attributes:
        remaining: bytes still to come.
        offset: bytes of the body that have come.
        received_direct: bytes that the transport wrote into the memory.
        received_copied: bytes that were copied there from elsewhere.
    """

    inflates = False
    is_waiting = False
    held_bytes = 0

    def __init__(self, targets: list[memoryview], *, offset: int = 0) -> None:
        """Begin.

        Args:
            targets: the memory for the bytes, in order; none of it is empty.
            offset: bytes of the body that are known already, and do not come.
        """
        self._targets = targets
        self._index = 0
        self._target = targets[0] if targets else _NOTHING
        self._failure: RemoteProtocolError | None = None
        self._has_ended = False
        self.remaining: int = sum(map(len, targets))
        self.offset: int = offset
        self.received_direct: int = 0
        self.received_copied: int = 0

    @property
    def wants_data(self) -> bool:
        """Whether bytes are missing, and can still come."""
        return self.remaining > 0

    @property
    def is_complete(self) -> bool:
        """Whether the body has arrived."""
        return not self.remaining and self._failure is None

    def get_buffer(self) -> memoryview:
        """Return the memory of the next bytes, while `wants_data`."""
        return self._target

    def following_buffers(self) -> list[memoryview]:
        """Return the memory that follows `get_buffer()`."""
        return self._targets[self._index + 1 : self._index + _MAX_TARGETS]

    def buffer_updated(self, nbytes: int) -> None:
        """Report that the transport wrote bytes there."""
        self.received_direct += nbytes
        self._count(nbytes)

    def receive(self, data: memoryview) -> int:
        """Copy bytes from elsewhere; return how many of them belong to the body."""
        taken = min(len(data), self.remaining)
        copied = 0
        while copied < taken:
            target = self._target
            piece = data[copied : min(taken, copied + len(target))]
            target[: len(piece)] = piece
            self._count(len(piece))
            copied += len(piece)
        self.received_copied += taken
        return taken

    def work(self) -> bool:
        """Do nothing: there is no work."""
        return False

    def receive_eof(self) -> None:
        """Report that the connection has ended, while `wants_data`."""
        self._failure = truncated(self.offset)
        self.remaining = 0

    def next_event(self) -> EndOfMessage | NeedData:
        """Return the end of the message when it has come.

        Raises:
            RemoteProtocolError: the connection has ended before.
            LocalProtocolError: it has been returned already.
        """
        if self._failure is not None:
            raise copy(self._failure)
        if self.remaining:
            return NEED_DATA
        if self._has_ended:
            msg = "the message is complete"
            raise LocalProtocolError(msg)
        self._has_ended = True
        return EndOfMessage(nbytes=self.offset)

    def _count(self, nbytes: int) -> None:
        self.offset += nbytes
        self.remaining -= nbytes
        target = self._target
        while nbytes >= len(target):
            nbytes -= len(target)
            self._index += 1
            if self._index == len(self._targets):
                self._target = _NOTHING
                return
            target = self._targets[self._index]
        self._target = target[nbytes:]
