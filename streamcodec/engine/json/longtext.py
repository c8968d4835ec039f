"""JSON long text: a string of many megabytes, decoded while it comes in.

An element of BYTES may be an image or a recording, so its string may be as long as the header. It is split where its
blocks end, but not within a character or an escape. Each piece is parsed as a string of its own, so the usual parser
decides what is valid. Half of a surrogate pair at the end of a piece is kept until the other half comes.
"""

from __future__ import annotations

from codecs import utf_8_decode
from io import BytesIO
from typing import Final

from streamcodec.engine.errors import MessageError
from streamcodec.engine.json.text import parse_slice
from streamcodec.engine.limits import Limits

HALF_OF_A_PAIR: Final = rb"\ud800"

_ESCAPE_BYTES: Final = 6
"""The longest escape."""

_CHARACTER_BYTES: Final = 4


class LongText:
    """One string, without its quotes."""

    def __init__(self, offset: int, limits: Limits) -> None:
        """Begin with the first byte, at an offset of the header."""
        self._start = self._offset = offset
        self._limits = limits
        self._rest = b""
        self._high = ""
        self._has_half = False
        self._value = BytesIO()  # it grows without a copy, and returns its bytes without a copy

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self._value.tell() + len(self._rest)

    @property
    def sent_bytes(self) -> int:
        """Bytes of the header that have been decoded."""
        return self._offset - self._start

    @property
    def rest(self) -> bytes:
        """Bytes that have come and are not decoded yet: they may be a part of a character or an escape."""
        return self._rest

    @property
    def value(self) -> bytes:
        """The decoded string as UTF-8, when it has ended."""
        return self._value.getvalue()

    @property
    def stand_in(self) -> bytes:
        """The text that replaces the string: a lone surrogate if the string has one, which is refused with its path."""
        return HALF_OF_A_PAIR if self._has_half else b""

    def take(self, part: bytes, *, is_last: bool) -> None:
        """Decode the next bytes.

        Raises:
            RemoteProtocolError: it is not UTF-8, or no JSON string; with the offset.
        """
        part = self._rest + part
        end = len(part) if is_last else _end_of_whole(part)
        try:
            text: str = self._high + parse_slice(b'"%b"' % part[:end], self._limits)
        except MessageError as error:
            error.offset = self._offset - 1 + (error.offset or 0)  # whatever is wrong in a string has one
            raise
        self._rest = part[end:]
        self._offset += end
        if self._high:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        self._high = text[-1:] if not is_last and "\ud800" <= text[-1:] <= "\udbff" else ""
        try:
            self._value.write(text.removesuffix(self._high).encode())
        except UnicodeEncodeError:
            self._has_half = True


def _end_of_whole(part: bytes) -> int:
    """Return where a part of a string may be cut, which begins with a whole character or escape."""
    escape = part.rfind(b"\\", max(len(part) - _ESCAPE_BYTES, 0))
    if escape >= 0 and (escape - len(part[:escape].rstrip(b"\\"))) % 2 == 0:  # else it is itself escaped
        return escape
    tail = part[1 - _CHARACTER_BYTES :]
    return len(part) - len(tail) + utf_8_decode(tail, "replace", False)[1]
