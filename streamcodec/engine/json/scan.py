"""JSON scan: the structure of a text, found while it comes in.

The `marks` of a block are put together with what is asked of them: which values begin and end there, how many there
are, and in which string the block begins and ends. A text of numbers costs little more than looking for its commas.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streamcodec.engine.json.marks import CLOSE_ARRAY, CLOSE_OBJECT, QUOTE, Depths, Kinds, Marks, Places
from streamcodec.engine.json.text import too_deep
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import record

LONG_BYTES: Final = 32 << 10
"""A header that is longer is read in blocks of that size. Of its parts, those that are longer may not have more than
`max_json_values`; what is shorter is parsed quickly in any case. A string that is longer is decoded in pieces."""

_STRUCTURE: Final = b",[]{}"

_PLAIN: Final = tuple(bytes([byte]) for byte in b'"[]{}\\')
"""What a block of numbers has none of."""


@record()
class Block:
    """A part of a text, with its commas and brackets, but not those in strings. All arrays have the shape [count]."""

    text: bytes
    """All of it."""
    offset: int
    """Of its first byte, from the start of the text."""

    places: Places
    """Where they stand in the block, in ascending order."""
    kinds: Kinds
    """Which they are."""
    depths: Depths
    """How many arrays and objects are open behind each."""

    string_end: int | None
    """Where in the block the quote is that ends the string in which the block begins; None if there is none."""
    string_offset: int | None
    """Offset of the quote that begins the string in which the block ends; None if it does not end in one."""

    def first(self, wanted: np.ndarray[Any, np.dtype[np.bool_]], start: int) -> int | None:
        """Return the first wanted mark at or behind a place, by its index; None if there is none."""
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
        """Return the depths behind the marks at some places, 0 where there is no mark; of a block that has marks."""
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
        """Go on by a block if it has nothing but commas to mark, and is not within a string; tell whether it has."""
        if not self._marks.is_at_rest or any(mark in block for mark in _PLAIN):
            return False
        self.offset += len(block)
        return True

    def scan(self, block: bytes) -> Block:
        """Go on by a block.

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
                self._string_offset = start + int(quotes[-1])  # which is of interest if it begins a string
            wanted = np.flatnonzero(outside & ~is_quote)
            places, kinds = places[wanted], kinds[wanted]
        depths = marks.deepen(kinds)
        if len(depths) and int(depths.max()) > self._limits.max_json_depth:
            place = int(places[int(np.argmax(depths > self._limits.max_json_depth))])
            raise too_deep(start + place, self._limits)
        return Block(
            text=block,
            offset=start,
            places=places,
            kinds=kinds,
            depths=depths,
            string_end=string_end,
            string_offset=self._string_offset if marks.is_in_string else None,
        )
