"""JSON scan: the structure of a text, found while it comes in.

A `TextBlock` is a block of text with its `marks`. It says which values begin and end there, how many there are, and
whether the block begins or ends within a string. A text of numbers costs little more than a search for its commas.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streamcodec.engine.json.marks import CLOSE_ARRAY, CLOSE_OBJECT, QUOTE, Depths, Kinds, Marks, Places
from streamcodec.engine.json.text import too_deep
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import record

DIGITS_PER_VALUE: Final = 20
"""An integer of thousands of digits counts as one value for each group of this many digits: its conversion takes
quadratic time."""

LONG_BYTES: Final = 32 << 10
"""A longer header is read in blocks of this size. A part of it that is longer than this must not have more than
`max_json_values`; a shorter part is parsed quickly in any case. A longer string is decoded in pieces."""

_STRUCTURE: Final = b",[]{}"

_PLAIN: Final = tuple(bytes([byte]) for byte in b'"[]{}\\')
"""Bytes that a block of numbers does not contain."""


@record()
class TextBlock:
    """A part of a text, with its commas and brackets, but not those in strings. All arrays have the shape [count]."""

    text: bytes
    """The bytes of the block."""
    offset: int
    """Offset of its first byte, from the start of the text."""

    places: Places
    """Places of the marks in the block, in ascending order."""
    kinds: Kinds
    """The bytes of the marks."""
    depths: Depths
    """How many arrays and objects are open behind each."""

    string_end: int | None
    """Where in the block the quote is that ends the string in which the block begins; None if there is none."""
    string_offset: int | None
    """Offset of the quote that begins the string in which the block ends; None if it does not end in one."""

    def first(self, wanted: np.ndarray[Any, np.dtype[np.bool_]], start: int) -> int | None:
        """Return the index of the first wanted mark at or behind a place; None if there is none."""
        index = self.index(start)
        found = wanted[index:]
        offset = int(found.argmax()) if len(found) else 0
        return index + offset if len(found) and found[offset] else None

    def index(self, place: int) -> int:
        """Return the index of the first mark at or behind a place."""
        return int(self.places.searchsorted(place))

    def value_count(self, first: int, last: int) -> int:
        """Return about how many values begin in a run of marks: one behind each comma and opening bracket."""
        kinds = self.kinds[first:last]
        return int(np.count_nonzero((kinds != CLOSE_ARRAY) & (kinds != CLOSE_OBJECT)))

    def depths_at(self, places: Places) -> Depths:
        """Return the depths behind the marks at some places, 0 where there is no mark. The block must have marks."""
        indices = np.minimum(self.places.searchsorted(places), len(self.places) - 1)
        return np.where(self.places[indices] == places, self.depths[indices], 0)


class Scanner:
    """Finds the structure of one text; made for each."""

    __slots__ = ("_limits", "_marks", "_string_offset", "offset")

    def __init__(self, limits: Limits) -> None:
        """Begin before the first byte."""
        self._limits = limits
        self._marks = Marks(_STRUCTURE)
        self._string_offset = 0
        self.offset: int = 0

    @property
    def depth(self) -> int:
        """How many arrays and objects are open behind the last block."""
        return self._marks.depth

    def passes(self, block: bytes) -> bool:
        """Read a block if all its marks are commas and it is not within a string; return whether it was read."""
        if not self._marks.is_at_rest or any(mark in block for mark in _PLAIN):
            return False
        self.offset += len(block)
        return True

    def scan(self, block: bytes) -> TextBlock:
        """Read a block, and return it with its marks.

        Raises:
            LimitExceededError: `max_json_depth`, with the offset of the bracket.
        """
        start = self.offset
        self.offset += len(block)
        marks = self._marks
        was_in_string, string_end = marks.is_in_string, None
        places, kinds, outside = marks.find(block)
        if outside is not None:
            is_quote = kinds == QUOTE
            quotes = places[is_quote]
            if len(quotes):
                string_end = int(quotes[0]) if was_in_string else None
                self._string_offset = start + int(quotes[-1])  # used only if it begins a string
            wanted = np.flatnonzero(outside & ~is_quote)
            places, kinds = places[wanted], kinds[wanted]
        depths = marks.deepen(kinds)
        if len(depths) and int(depths.max()) > self._limits.max_json_depth:
            place = int(places[int(np.argmax(depths > self._limits.max_json_depth))])
            raise too_deep(start + place, self._limits)
        return TextBlock(
            text=block,
            offset=start,
            places=places,
            kinds=kinds,
            depths=depths,
            string_end=string_end,
            string_offset=self._string_offset if marks.is_in_string else None,
        )
