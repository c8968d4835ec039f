"""JSON scan: the structure of a text, found while it comes in.

It knows brackets, commas, strings and escapes and no more of JSON: whether the text is valid is for the parser. For a
text that is not JSON the marks mean little, but they are the same however it was cut. Time is linear, and a text of
numbers costs little more than looking for its commas.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streamcodec.core.jsondepth import running_sum, without_escapes
from streamcodec.core.jsontext import too_deep
from streamcodec.core.limits import Limits
from streamcodec.core.record import record

QUOTE: Final = 1
COMMA: Final = 2
OPEN_ARRAY: Final = 3
CLOSE_ARRAY: Final = 4
OPEN_OBJECT: Final = 5
CLOSE_OBJECT: Final = 6

_KIND: Final = np.zeros(256, np.uint8)
_KIND[list(b'",[]{}')] = [QUOTE, COMMA, OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT]
_STEP: Final = np.array([0, 0, 0, 1, -1, 1, -1], np.int8)

_PLAIN: Final = tuple(bytes([byte]) for byte in b'"[]{}\\')
"""What a block of numbers has none of."""


@record()
class Block:
    """A part of a text, with its commas and brackets, but not those in strings. All arrays have the shape [count]."""

    text: bytes
    """All of it."""
    offset: int
    """Of its first byte, from the start of the text."""

    places: np.ndarray[Any, np.dtype[np.int64]]
    """Where they stand in the block, in ascending order."""
    kinds: np.ndarray[Any, np.dtype[np.uint8]]
    """Which they are."""
    depths: np.ndarray[Any, np.dtype[np.int32]]
    """How many arrays and objects are open behind each."""

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

    def depths_at(self, places: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return the depths behind the marks at some places; 0 where there is no mark."""
        indices = np.minimum(self.places.searchsorted(places), max(len(self.places) - 1, 0))
        if not len(self.places):
            return np.zeros(len(places), np.int32)
        return np.where(self.places[indices] == places, self.depths[indices], 0)


class Scanner:
    """Finds the structure of one text; made for each."""

    __slots__ = ("_is_escaped", "_is_in_string", "_limits", "depth", "offset")

    def __init__(self, limits: Limits) -> None:
        """Begin before the first byte."""
        self._limits = limits
        self._is_in_string = False
        self._is_escaped = False
        self.depth = 0
        self.offset = 0

    def passes(self, block: bytes) -> bool:
        """Go on by a block if it has nothing but commas to mark, and is not within a string; tell whether it has."""
        if self._is_in_string or self._is_escaped or any(mark in block for mark in _PLAIN):
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
        characters, self._is_escaped = without_escapes(block, is_escaped=self._is_escaped)
        kinds = _KIND[characters]
        places = np.flatnonzero(kinds)
        kinds = kinds[places]
        is_quote = kinds == QUOTE
        if self._is_in_string or is_quote.any():
            # Within a string is what stands after an odd number of quotes.
            is_inside = (running_sum(is_quote) + self._is_in_string) & 1
            self._is_in_string = bool(is_inside[-1]) if len(is_inside) else self._is_in_string
            is_mark = (is_inside == 0) & ~is_quote
            places, kinds = places[is_mark], kinds[is_mark]
        depths = running_sum(_STEP[kinds]) + np.int32(self.depth)
        if len(depths):
            self.depth = int(depths[-1])
            if int(depths.max()) > self._limits.max_json_depth:
                place = int(places[int(np.argmax(depths > self._limits.max_json_depth))])
                raise too_deep(start + place, self._limits)
        return Block(text=block, offset=start, places=places, kinds=kinds, depths=depths)
