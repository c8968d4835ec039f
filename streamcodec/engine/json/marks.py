"""JSON marks: the positions and depths of brackets and commas in a text, outside of its strings.

This is the only scanner of JSON text. It knows brackets, commas, strings and escapes. The parser decides whether the
text is valid. For a text that is not JSON the marks mean little, but they do not depend on how the text was split into
blocks. Three modules use the marks: `depth` for the depth of a text, `objectend` for the end of an object, and `scan`
for the whole structure. Each of them chooses which bytes count as marks.

Time is linear, memory is in proportion to a block.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

COMMA: Final = ord(",")
OPEN_ARRAY: Final = ord("[")
CLOSE_ARRAY: Final = ord("]")
OPEN_OBJECT: Final = ord("{")
CLOSE_OBJECT: Final = ord("}")

QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_OTHER: Final = ord("_")

_STEP: Final = np.zeros(256, np.int8)
_STEP[[OPEN_ARRAY, OPEN_OBJECT]], _STEP[[CLOSE_ARRAY, CLOSE_OBJECT]] = 1, -1

Places = np.ndarray[Any, np.dtype[np.int64]]
"""Places in a block, in ascending order, of shape [count]."""

Kinds = np.ndarray[Any, np.dtype[np.uint8]]
"""Which marks stand there, of shape [count]."""

Outside = np.ndarray[Any, np.dtype[np.bool_]]
"""Which of the marks stand outside of strings, of shape [count]."""

Depths = np.ndarray[Any, np.dtype[np.int32]]
"""How many arrays and objects are open behind each, of shape [count]."""


class Marks:
    """Finds the marks of one text, block by block; made for each.

    Attributes:
        depth: how many arrays and objects are open behind the last block.
        is_in_string: whether the last block ends in a string.
    """

    __slots__ = ("_is_escaped", "_wanted", "depth", "is_in_string")

    def __init__(self, wanted: bytes) -> None:
        """Begin before the first byte. Marks are quotes, and the chosen bytes among commas and brackets."""
        self._wanted = wanted
        self._is_escaped = False
        self.is_in_string: bool = False
        self.depth: int = 0

    @property
    def is_at_rest(self) -> bool:
        """Whether the last block ends neither in a string nor in an escape."""
        return not (self.is_in_string or self._is_escaped)

    def pass_strings(self, block: bytes) -> None:
        """Read a block that has no marks except quotes."""
        characters, self._is_escaped = _without_escapes(block, is_escaped=self._is_escaped)
        self.is_in_string ^= bool(np.count_nonzero(characters == QUOTE) & 1)

    def find(self, block: bytes) -> tuple[Places, Kinds, Outside | None]:
        """Read a block. Return its marks, and which of them stand outside of strings; None if all do.

        Quotes are among the marks, but whether they count as outside has no meaning; `deepen` ignores them.
        """
        characters, self._is_escaped = _without_escapes(block, is_escaped=self._is_escaped)
        is_mark = characters == QUOTE
        for byte in self._wanted:  # a handful of comparisons of a block takes less time than to look each byte up
            is_mark |= characters == byte
        places = np.flatnonzero(is_mark)
        kinds = characters[places]
        is_quote = kinds == QUOTE
        if not (self.is_in_string or is_quote.any()):
            return places, kinds, None
        # A mark is within a string if an odd number of quotes stands before it.
        outside = np.logical_xor.accumulate(is_quote) == self.is_in_string
        if len(outside):
            self.is_in_string = not outside[-1]
        return places, kinds, outside

    def deepen(self, kinds: Kinds, outside: Outside | None = None) -> Depths:
        """Count the brackets of a block. Return how many are open behind each mark."""
        steps = _STEP[kinds]
        if outside is not None:
            steps = steps * outside
        # numpy converts while it accumulates, too, but more slowly; without memory for that it raises `SystemError`.
        sums: Depths = np.add.accumulate(steps.astype(np.int32), dtype=np.int32)
        depths = sums + np.int32(self.depth)
        if len(depths):
            self.depth = int(depths[-1])
        return depths


def _without_escapes(block: bytes, *, is_escaped: bool) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], bool]:
    """Overwrite escaped characters, so that each remaining quote opens or closes a string.

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
