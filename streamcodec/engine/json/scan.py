"""JSON scan: the structure of a text, found while it comes in.

It knows brackets, commas, strings and escapes and no more of JSON: whether the text is valid is for the parser. For a
text that is not JSON the marks mean little, but they are the same however it was cut. Time is linear, and a text of
numbers costs little more than looking for its commas.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streamcodec.engine.json.depth import running_sum, without_escapes
from streamcodec.engine.json.text import too_deep
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import record

LONG_BYTES: Final = 32 << 10
"""A header that is longer is read in blocks of that size. Of its parts, those that are longer may not have more than
`max_json_values`; what is shorter is parsed quickly in any case. A string that is longer is decoded in pieces."""

QUOTE: Final = 1
COMMA: Final = 2
OPEN_ARRAY: Final = 3
CLOSE_ARRAY: Final = 4
OPEN_OBJECT: Final = 5
CLOSE_OBJECT: Final = 6

_MARKS: Final = b'",[]{}'
_KINDS: Final = bytes(_MARKS.find(byte) + 1 for byte in range(256))
"""Of each byte, in the order above; 0 if it is no mark. `bytes.translate` takes a third of the time of an array."""

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

    def depths_at(self, places: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return the depths behind the marks at some places, 0 where there is no mark; of a block that has marks."""
        indices = np.minimum(self.places.searchsorted(places), len(self.places) - 1)
        return np.where(self.places[indices] == places, self.depths[indices], 0)


class Scanner:
    """Finds the structure of one text; made for each."""

    __slots__ = ("_is_escaped", "_is_in_string", "_limits", "_string_offset", "depth", "offset")

    def __init__(self, limits: Limits) -> None:
        """Begin before the first byte."""
        self._limits = limits
        self._is_in_string = False
        self._is_escaped = False
        self._string_offset = 0
        self.depth: int = 0
        self.offset: int = 0

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
        kinds = np.frombuffer(characters.tobytes().translate(_KINDS), np.uint8)
        places = np.flatnonzero(kinds != 0)  # numpy counts truth values six times as fast
        kinds = kinds[places]
        is_quote = kinds == QUOTE
        string_end = None
        if self._is_in_string or is_quote.any():
            # Within a string is what stands after an odd number of quotes.
            is_inside = (running_sum(is_quote) + self._is_in_string) & 1
            string_end = self._note_strings(start, places[is_quote])
            marks = np.flatnonzero((is_inside == 0) & ~is_quote)
            places, kinds = places[marks], kinds[marks]
        depths = running_sum(_STEP[kinds]) + np.int32(self.depth)
        if len(depths):
            self.depth = int(depths[-1])
            if int(depths.max()) > self._limits.max_json_depth:
                place = int(places[int(np.argmax(depths > self._limits.max_json_depth))])
                raise too_deep(start + place, self._limits)
        return Block(
            text=block,
            offset=start,
            places=places,
            kinds=kinds,
            depths=depths,
            string_end=string_end,
            string_offset=self._string_offset if self._is_in_string else None,
        )

    def _note_strings(self, start: int, quotes: np.ndarray[Any, np.dtype[np.int64]]) -> int | None:
        """Go on by the quotes of a block; return which of them ends a string that began before, if one does."""
        was_in_string = self._is_in_string
        if len(quotes):
            self._is_in_string = was_in_string ^ bool(len(quotes) & 1)
            self._string_offset = start + int(quotes[-1])  # which is of interest if the last quote begins a string
        return int(quotes[0]) if was_in_string and len(quotes) else None
