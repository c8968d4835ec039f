"""The end of a JSON object, found while its bytes come in.

In the headerless form nobody has declared how long the JSON header is: tensors follow the closing brace of the object
at once. This room finds that brace. It knows strings, escapes and braces and no more of JSON: whether the text is valid
is for the parser, which gets exactly the object. For text that is not JSON the place found means nothing, but it is
always the same place, however the bytes were cut.

Time is linear, and most of it is spent in searches that run at the speed of memory: a block of numbers has no brace, so
only its quotes are counted. Braces are looked at one by one, in arrays, where there are some.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcodec.core.errors import ErrorCode, RemoteProtocolError

WHITE_SPACE: Final = b" \t\n\r"
"""RFC 8259, section 2: what may stand around a JSON value."""

_BLOCK_BYTES: Final = 64 << 10
_QUOTE: Final = ord('"')
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")


class ObjectEnd:
    """Looks for the end of one object; made for each message."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._position = 0
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False

    def find(self, data: memoryview) -> int | None:
        """Look at the next bytes.

        Args:
            data: what follows the bytes of the calls before.

        Returns:
            How long the object is, counted from the first byte of all, the white space before it included; None if it
            does not end here.

        Raises:
            RemoteProtocolError: `invalid-header`: the first byte that is not white space is no opening brace.
        """
        for start in range(0, len(data), _BLOCK_BYTES):
            end = self._find_in_block(bytes(data[start : start + _BLOCK_BYTES]))
            if end is not None:
                return end
        return None

    def _find_in_block(self, block: bytes) -> int | None:
        start = self._position
        self._position += len(block)
        if self._depth == 0 and not self._begins(block, start):
            return None
        block = self._without_escapes(block)
        if b"{" not in block and b"}" not in block:
            self._is_in_string ^= bool(block.count(b'"') & 1)
            return None
        end = self._find_brace(block)
        return None if end is None else start + end

    def _begins(self, block: bytes, start: int) -> bool:
        """Tell whether the object begins in this block; False if all of it is white space."""
        text = block.lstrip(WHITE_SPACE)
        if text and text[0] != _OPEN:
            msg = "a JSON object belongs here, which begins with an opening brace"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, offset=start + len(block) - len(text))
        return bool(text)

    def _without_escapes(self, block: bytes) -> bytes:
        """Overwrite escapes, so that every quote that is left opens or closes a string."""
        if self._is_escaped:
            block = b"_" + block[1:]
        if b"\\" in block:
            block = block.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        self._is_escaped = block.endswith(b"\\")
        return block

    def _find_brace(self, block: bytes) -> int | None:
        """Return where the object ends in a block, counted from its start."""
        characters = np.frombuffer(block, np.uint8)
        places = np.flatnonzero((characters == _QUOTE) | (characters == _OPEN) | (characters == _CLOSE))
        marks = characters[places]
        is_quote = marks == _QUOTE
        # Within a string is what stands after an odd number of quotes.
        in_string = (np.cumsum(is_quote) + self._is_in_string) & 1
        steps = np.where(is_quote | (in_string == 1), 0, np.where(marks == _OPEN, 1, -1))
        depths = np.cumsum(steps) + self._depth
        ends = np.flatnonzero(depths <= 0)
        if len(ends):
            # Before the first brace the depth is 0 too, but `_begins` has seen that nothing stands there.
            return int(places[ends[0]]) + 1
        self._depth, self._is_in_string = int(depths[-1]), bool(in_string[-1])
        return None
