"""Tape: the beginning and the last bytes of what was read, for a view of the bytes around an error.

A pipe cannot be read again, and neither can a body that was compressed. An error is in the header, which is at the
beginning, or where reading has stopped. So these two parts are kept, and nothing else.
"""

from __future__ import annotations

from typing import Final

_BEGINNING_BYTES: Final = 1 << 20
_RECENT_BYTES: Final = 64 << 10


class Tape:
    """The bytes of a body as far as they are kept.

    Attributes:
        count: bytes so far.
    """

    def __init__(self) -> None:
        """Begin before the first byte."""
        self.count: int = 0
        self._beginning = bytearray()
        self._recent = bytearray()

    def add(self, data: memoryview) -> None:
        """Keep of these bytes what has to be kept."""
        self.count += len(data)
        self._beginning += data[: _BEGINNING_BYTES - len(self._beginning)]
        if len(data) + len(self._recent) > 2 * _RECENT_BYTES:
            del self._recent[:-_RECENT_BYTES]
        self._recent += data[-_RECENT_BYTES:]

    def between(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets; fewer, from the start on, if they are not kept or have not come."""
        end = min(end, self.count)
        if end <= len(self._beginning):
            return bytes(self._beginning[start:end])
        first = self.count - len(self._recent)
        return bytes(self._recent[start - first : end - first]) if start >= first else b""
