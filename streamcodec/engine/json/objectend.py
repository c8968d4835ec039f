"""The end of a JSON object, found while its bytes come in.

In the headerless form, the length of the JSON header is not declared. The tensors follow the closing brace of the
object at once. This module finds that brace, with the `marks` of the text. The parser gets exactly the object, and
decides whether it is valid. For text that is not JSON the place has no meaning, but it does not depend on how the bytes
were split into blocks.

Time is linear, and most of it is spent in searches that run at the speed of memory. A block of numbers has no brace, so
only its quotes are counted.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.json.marks import Marks

WHITE_SPACE: Final = b" \t\n\r"
"""RFC 8259, section 2: what may stand around a JSON value."""

_BLOCK_BYTES: Final = 64 << 10
_OPEN: Final = ord("{")
_BRACES: Final = b"{}"


def goes_on(text: memoryview) -> bool:
    """Tell whether a text begins with an object that is followed by anything but white space."""
    if not bytes(text).lstrip(WHITE_SPACE).startswith(b"{"):
        return False
    end = ObjectEnd().find(text)
    return end is not None and bool(bytes(text[end:]).lstrip(WHITE_SPACE))


class ObjectEnd:
    """Looks for the end of one object; made for each message."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._position = 0
        self._marks = Marks(_BRACES)

    def find(self, data: memoryview) -> int | None:
        """Look at the next bytes.

        Args:
            data: what follows the bytes of the calls before.

        Returns:
            The end of the object, counted from the first byte of the message; None if it does not end in this block.

        Raises:
            RemoteProtocolError: `invalid-header`: the first byte that is not white space is not an opening brace.
        """
        for start in range(0, len(data), _BLOCK_BYTES):
            end = self._find_in_block(bytes(data[start : start + _BLOCK_BYTES]))
            if end is not None:
                return end
        return None

    def _find_in_block(self, block: bytes) -> int | None:
        start = self._position
        self._position += len(block)
        if self._marks.depth == 0 and not self._begins(block, start):
            return None
        if b"{" not in block and b"}" not in block:
            self._marks.pass_strings(block)
            return None
        places, kinds, outside = self._marks.find(block)
        # Before the first brace the depth is 0 too, but `_begins` has seen that nothing stands there.
        ends = np.flatnonzero(self._marks.deepen(kinds, outside) <= 0)
        return start + int(places[ends[0]]) + 1 if len(ends) else None

    def _begins(self, block: bytes, start: int) -> bool:
        """Tell whether the object begins in this block; False if all of it is white space."""
        text = block.lstrip(WHITE_SPACE)
        if text and text[0] != _OPEN:
            msg = "a JSON object belongs here, which begins with an opening brace"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, offset=start + len(block) - len(text))
        return bool(text)
