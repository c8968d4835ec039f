"""The end of a JSON object, found while its bytes come in.

In the headerless form nobody has declared how long the JSON header is: tensors follow the closing brace of the object
at once. This room finds that brace. It knows strings, escapes and braces and no more of JSON: whether the text is valid
is for the parser, which gets exactly the object. For text that is not JSON the place found means nothing, but it is
always the same place, however the bytes were cut.

Time is linear, and most of it is spent in searches that run at the speed of memory: a block of numbers has no brace, so
only its quotes are counted. Braces are looked at one by one, in arrays, where there are some.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.json.depth import running_sum, without_escapes

WHITE_SPACE: Final = b" \t\n\r"
"""RFC 8259, section 2: what may stand around a JSON value."""

_BLOCK_BYTES: Final = 64 << 10
_QUOTE: Final = ord('"')
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")
_STEP: Final = np.zeros(256, np.int8)
_STEP[_OPEN], _STEP[_CLOSE] = 1, -1


def goes_on(text: memoryview) -> bool:
    """Tell whether a text begins with an object, behind which there is something else than white space."""
    if not bytes(text).lstrip(WHITE_SPACE).startswith(b"{"):
        return False
    end = ObjectEnd().find(text)
    return end is not None and bool(bytes(text[end:]).lstrip(WHITE_SPACE))


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
        characters, self._is_escaped = without_escapes(block, is_escaped=self._is_escaped)
        if b"{" not in block and b"}" not in block:
            self._is_in_string ^= bool(np.count_nonzero(characters == _QUOTE) & 1)
            return None
        end = self._find_brace(characters)
        return None if end is None else start + end

    def _begins(self, block: bytes, start: int) -> bool:
        """Tell whether the object begins in this block; False if all of it is white space."""
        text = block.lstrip(WHITE_SPACE)
        if text and text[0] != _OPEN:
            msg = "a JSON object belongs here, which begins with an opening brace"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, offset=start + len(block) - len(text))
        return bool(text)

    def _find_brace(self, characters: np.ndarray[Any, np.dtype[np.uint8]]) -> int | None:
        """Return where the object ends in a block, counted from its start."""
        places = np.flatnonzero((characters == _QUOTE) | (characters == _OPEN) | (characters == _CLOSE))
        if not len(places):  # the brace was escaped, in what is not JSON
            return None
        marks = characters[places]
        # Within a string is what stands after an odd number of quotes.
        in_string = running_sum(marks == _QUOTE) + self._is_in_string & 1
        steps = _STEP[marks] * (1 - in_string)
        depths = running_sum(steps) + self._depth
        ends = np.flatnonzero(depths <= 0)
        if len(ends):
            # Before the first brace the depth is 0 too, but `_begins` has seen that nothing stands there.
            return int(places[ends[0]]) + 1
        self._depth, self._is_in_string = int(depths[-1]), bool(in_string[-1])
        return None
