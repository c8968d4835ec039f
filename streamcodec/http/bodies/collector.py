"""Collector: receives a body that is not an inference message, such as metadata or an error, into bounded memory."""

from __future__ import annotations

from streamcodec.engine.errors import LimitExceededError, LocalProtocolError
from streamcodec.engine.receiving import NEED_DATA, Buffer, EndOfMessage, NeedData

_BLOCK_BYTES = 4 << 10


class Collector:
    """Keeps the first bytes of a body and counts the rest.

    Attributes:
        data: the bytes that were kept, at most `max_bytes`.
        max_bytes: how many bytes are kept.
        is_complete: whether the body has ended.
        offset: bytes of the body so far, kept or dropped.
    """

    def __init__(self, max_bytes: int, *, max_dropped_bytes: int | None = None) -> None:
        """Keep at most `max_bytes` and drop the rest.

        Args:
            max_bytes: how many bytes to keep.
            max_dropped_bytes: how many bytes to drop before the body is refused; None for no limit.
        """
        self.max_bytes: int = max_bytes
        self._max_dropped_bytes = max_dropped_bytes
        self._block = memoryview(bytearray(_BLOCK_BYTES))
        self.data: bytearray = bytearray()
        self.is_complete: bool = False
        self.offset: int = 0

    @property
    def needs_data(self) -> bool:
        """Whether the body may go on."""
        return not (self.is_complete or self._is_too_long)

    @property
    def is_paused(self) -> bool:
        """False: a collector never waits."""
        return False

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return memory for the next bytes."""
        if self.is_complete:
            msg = "the body is complete"
            raise LocalProtocolError(msg)
        return self._block

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return `get_buffer()` alone."""
        return [self.get_buffer(sizehint)]

    def buffer_updated(self, nbytes: int) -> None:
        """Keep the bytes that were written to `get_buffer()`, as far as there is room."""
        self.feed(self._block[:nbytes])

    def work(self) -> None:
        """Do nothing: a collector has no work but copying."""

    def feed(self, chunk: Buffer) -> int:
        """Keep a chunk, as far as there is room; all of it belongs to the body."""
        self.data += chunk[: self.max_bytes - len(self.data)]
        self.offset += len(chunk)
        return len(chunk)

    def receive_eof(self) -> None:
        """Report that the body has ended."""
        self.is_complete = True

    def next_event(self) -> EndOfMessage | NeedData:
        """Return the end of the message when it has arrived.

        Raises:
            LimitExceededError: more than `max_dropped_bytes` were dropped.
        """
        if self._is_too_long:
            most = self._max_dropped_bytes or 0
            msg = f"the body goes on {most} bytes after the {self.max_bytes} that are kept"
            raise LimitExceededError(msg, limit="max_drain_bytes", offset=self.max_bytes + most)
        return EndOfMessage(nbytes=self.offset) if self.is_complete else NEED_DATA

    @property
    def _is_too_long(self) -> bool:
        return self._max_dropped_bytes is not None and self.offset - self.max_bytes > self._max_dropped_bytes
