"""JSON text that is kept: the rest of a root or an entry, without the parts that are read while they come.

The text is parsed in one go when it is complete. So a long text is refused. The offset in the header is known for each
byte, so that errors have the offsets and paths of the whole header.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from streamcodec.engine.errors import LimitExceededError, MessageError
from streamcodec.engine.json.marks import OPEN_ARRAY
from streamcodec.engine.json.objectend import WHITE_SPACE
from streamcodec.engine.json.scan import DIGITS_PER_VALUE, LONG_BYTES, TextBlock
from streamcodec.engine.json.text import parse_json
from streamcodec.engine.limits import Limits

_TAIL_BYTES: Final = 256
"""Bytes of the name of a member, its colon and the white space around them, if a block ends within them."""

_LONG_NUMBER: Final = re.compile(rb"[0-9]{100,}")


def opening_of(*names: str) -> re.Pattern[bytes]:
    """Match the beginning of a member that is an array, from the comma or bracket before it."""
    return re.compile(rb'[{,][ \t\r\n]*"(%b)"[ \t\r\n]*:[ \t\r\n]*\[' % "|".join(names).encode())


class KeptText:
    """Text that is kept, without the parts that were read before. The origin of each byte is known."""

    def __init__(self, offset: int) -> None:
        """Begin before the text that stands at an offset of the header."""
        self._parts: list[bytes] = []
        self._starts: list[int] = []
        self._offsets: list[int] = []
        self._end = offset
        self._first = b""
        self._tail = b""
        self._value_count = 0
        self.nbytes: int = 0

    def skip_to(self, offset: int) -> None:
        """Leave out text up to an offset of the header."""
        self._end = offset

    def add(self, block: TextBlock, start: int, end: int) -> None:
        """Add a part of a block."""
        part, offset = block.text[start:end], block.offset + start
        if not part:
            return
        if not self._parts or offset != self._offsets[-1] + self.nbytes - self._starts[-1]:
            self._starts.append(self.nbytes)
            self._offsets.append(offset)
        self._parts.append(part)
        self.nbytes += len(part)
        self._end = offset + len(part)
        self._first = self._first or part.lstrip(WHITE_SPACE)[:1]
        first, last = block.index(start), block.index(end)
        tail = block.text[int(block.places[last - 1]) : end] if last > first else self._tail + part
        self._tail = tail if len(tail) <= _TAIL_BYTES and (last > first or self._tail) else b""
        self._value_count += block.value_count(first, last)
        self._value_count += sum(len(match[0]) // DIGITS_PER_VALUE for match in _LONG_NUMBER.finditer(part))

    def find(
        self, resolved: re.Pattern[bytes], depth: int, block: TextBlock, start: int, end: int
    ) -> tuple[str, int] | None:
        """Search for the beginning of a member in the part that is added next.

        Returns:
            The member's name, and the place of its bracket in the block; None if there is none of that depth.
        """
        first, last = block.index(start), block.index(end)
        is_candidate = (block.kinds[first:last] == OPEN_ARRAY) & (block.depths[first:last] == depth)
        candidates = block.places[first:last][is_candidate]
        if not len(candidates):
            return None
        text = self._tail + block.text[start : int(candidates[-1]) + 1]  # without the part behind it, which is long
        shift = start - len(self._tail)
        found = list(resolved.finditer(text))
        if not found or (self._first or text.lstrip(WHITE_SPACE)[:1]) != b"{":
            return None
        brackets = np.array([match.end() - 1 + shift for match in found])
        fits = block.depths_at(brackets) == depth
        index = int(fits.argmax())
        return (found[index][1].decode(), int(brackets[index])) if fits[index] else None

    def check_size(self, limits: Limits, path: str) -> None:
        """Refuse a text that is very long or has very many values, because it is parsed in one go.

        Raises:
            LimitExceededError: `max_json_text_bytes` or `max_json_values`.
        """
        if self.nbytes <= LONG_BYTES:
            return
        if self.nbytes > limits.max_json_text_bytes:
            msg = f"more than {limits.max_json_text_bytes} bytes of JSON stand here, besides the data of tensors"
            raise LimitExceededError(msg, limit="max_json_text_bytes", path=path)
        if self._value_count > limits.max_json_values:
            msg = f"more than {limits.max_json_values} JSON values stand here, besides the data of tensors"
            raise LimitExceededError(msg, limit="max_json_values", path=path)

    def parse(self, limits: Limits, path: Callable[[str], str], start: bytes = b"", end: bytes = b"") -> Any:  # noqa: ANN401
        """Parse the text between a start and an end. Errors have the offsets and paths of the header.

        Returns:
            As `parse_json`.
        """
        return self._parse(b"".join((start, self._text(), end)), limits, path, len(start))

    def parse_before_data(self, limits: Limits, path: Callable[[str], str]) -> dict[str, Any]:
        """Parse the members before `data`. The bracket of `data` is the last byte that was added."""
        text = self._text()[:-1].rstrip(WHITE_SPACE).removesuffix(b":").rstrip(WHITE_SPACE).removesuffix(b'"data"')
        members: dict[str, Any] = self._parse(text.rstrip(WHITE_SPACE).removesuffix(b",") + b"}", limits, path, 0)[0]
        return members

    def _text(self) -> bytes:
        self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def _parse(self, text: bytes, limits: Limits, path: Callable[[str], str], start: int) -> Any:  # noqa: ANN401
        try:
            return parse_json(text, limits)
        except MessageError as error:
            if error.offset is not None:
                error.offset = self._offset_of(error.offset - start)
            if error.path is not None:
                error.path = path(error.path)
            raise

    def _offset_of(self, position: int) -> int:
        """Return where a byte of the text, or its end, is in the header."""
        if not 0 <= position < self.nbytes:
            return self._end
        run = bisect_right(self._starts, position) - 1
        return self._offsets[run] + position - self._starts[run]
