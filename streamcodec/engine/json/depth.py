"""JSON depth: how deep a text nests, found before any parser recurses into it.

It knows brackets, strings and escapes and no more of JSON: text that is none may be called deep or not, and the parser
refuses it anyway. Time is linear, memory constant.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_BLOCK: Final = 64 << 10
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_OTHER: Final = ord("_")
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")
_CURL: Final = 0x20
"""What makes a curly bracket of a square one."""
_STEP: Final = np.zeros(256, np.int8)
_STEP[_OPEN], _STEP[_CLOSE] = 1, -1


def too_deep_at(data: bytes | bytearray | memoryview, limit: int) -> int | None:
    """Return where more than `limit` arrays and objects are open; None if that is nowhere.

    Text with few brackets cannot be deep, and finding that costs nothing; only beyond that the exact depth is found.
    """
    return _depth_exceeds_at(data, limit) if _count_openings(data, limit) > limit else None


def _count_openings(data: bytes | bytearray | memoryview, limit: int) -> int:
    """Count opening brackets, those in strings too, until they are more than `limit`."""
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


def _depth_exceeds_at(data: bytes | bytearray | memoryview, limit: int) -> int | None:
    depth = 0
    in_string = is_escaped = False
    for start in range(0, len(data), _BLOCK):
        characters, is_escaped = without_escapes(bytes(data[start : start + _BLOCK]), is_escaped=is_escaped)
        curly = characters | _CURL  # the few characters that matter are looked at, not all between them
        places = np.flatnonzero((characters == _QUOTE) | (curly == _OPEN) | (curly == _CLOSE))
        if not len(places):
            continue
        marks = curly[places]
        inside = running_sum(marks == _QUOTE) + in_string & 1
        depths = running_sum(_STEP[marks] * (1 - inside)) + depth
        if int(depths.max()) > limit:
            return start + int(places[np.argmax(depths > limit)])
        depth, in_string = int(depths[-1]), bool(inside[-1])
    return None


def without_escapes(block: bytes, *, is_escaped: bool) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], bool]:
    """Overwrite what is escaped, so that every quote that is left opens or closes a string.

    Args:
        block: a part of a text.
        is_escaped: whether the part before it has ended in the middle of an escape.

    Returns:
        The bytes of the block, as an array of shape [len(block)], and whether it ends in the middle of an escape.
    """
    characters = np.frombuffer(block, np.uint8)
    if not is_escaped and b"\\" not in block:
        return characters, False
    characters = characters.copy()
    if is_escaped:
        characters[0] = _OTHER
    places = np.flatnonzero(characters == _BACKSLASH)
    # In a run of backslashes the first escapes the second, the third the fourth, and the last what follows.
    starts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    in_run = np.arange(len(places)) - np.repeat(starts, np.diff(starts, append=len(places)))
    escaped = places[in_run & 1 == 0] + 1
    is_escaped = bool(len(escaped)) and int(escaped[-1]) == len(block)
    characters[escaped[: len(escaped) - is_escaped]] = _OTHER
    return characters, is_escaped


def running_sum(values: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the sums of all values up to each.

    numpy converts while it accumulates, too, but more slowly; without memory for that it raises `SystemError`.
    """
    sums: np.ndarray[Any, np.dtype[np.int32]] = np.add.accumulate(values.astype(np.int32), dtype=np.int32)
    return sums
