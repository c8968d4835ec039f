"""Vectors: the buffers of a message on their way into `sendmsg`, which may take any part of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

_MAX_VECTORS: Final = 512
"""At once; every system allows this many (Linux 1024)."""


class SendQueue:
    """Buffers that have not been sent yet. Nothing is joined or copied."""

    def __init__(self, buffers: Iterable[bytes | memoryview]) -> None:
        """Queue the buffers, leaving out empty ones."""
        self._views = deque(memoryview(buffer) for buffer in buffers if len(buffer))

    def __bool__(self) -> bool:
        """Whether something is left to be sent."""
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
