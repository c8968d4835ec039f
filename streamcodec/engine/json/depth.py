"""JSON depth: the nesting depth of a text, checked before any parser recurses into it.

For text that is not JSON the result has no meaning: the parser refuses it anyway. Time is linear, memory is constant.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcodec.engine.json.marks import Marks

_BLOCK: Final = 64 << 10
_BRACKETS: Final = b"[]{}"


def too_deep_at(data: bytes | bytearray | memoryview, limit: int) -> int | None:
    """Return the first place where more than `limit` arrays and objects are open; None if there is no such place.

    Text with few brackets cannot be deep, and to count brackets costs little. The exact depth is computed only for text
    with many brackets.
    """
    if _count_openings(data, limit) <= limit:
        return None
    marks = Marks(_BRACKETS)
    for start in range(0, len(data), _BLOCK):
        places, kinds, outside = marks.find(bytes(data[start : start + _BLOCK]))
        depths = marks.deepen(kinds, outside)
        if len(depths) and int(depths.max()) > limit:
            return start + int(places[np.argmax(depths > limit)])
    return None


def _count_openings(data: bytes | bytearray | memoryview, limit: int) -> int:
    """Count opening brackets, also within strings, until there are more than `limit`."""
    count = 0
    for start in range(0, len(data), _BLOCK):
        block = bytes(data[start : start + _BLOCK])
        if b"[" in block:  # much quicker than counting
            count += block.count(b"[")
        if b"{" in block:
            count += block.count(b"{")
        if count > limit:
            break
    return count
