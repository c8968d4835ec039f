"""Quick JSON: texts parsed, and floats written, by the optional package `msgspec` where it is installed.

This parser never refuses a text. If it accepts a text, its values are those of the standard library: the same strings,
exact integers, and the same doubles to the last bit (the tests compare the two). In all other cases it leaves the text
to the strict parser of `text.py`, which decides alone. These cases are: `msgspec` refuses the text; the text has a
literal that `msgspec` does not know (NaN); or it may have a duplicate key. The depth of the text is checked before. So
verdicts and values are the same with and without the package. Only the time differs.

Floats from 0.0001 to below 10**16 are written as `repr` writes them, in a twentieth of its time. `msgspec` writes other
floats differently, which the text shows.

If the system has no memory for `msgspec`, the process ends. So as much memory as it could need is reserved before each
use, and released at once. If that fails, the standard library is used, which only raises `MemoryError`.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

LEAST_BYTES = 64 << 10
"""Bytes of the shortest text for this parser. To import the package takes as long as to parse a hundred headers."""

_MOST_TIMES: Final = 48
"""Memory of the values for each byte of text, at most. 37 bytes were measured, for `[[[1]]]`."""

_ARENAS_BYTES: Final = 2 << 20
"""The interpreter allocates memory in pieces of 1 MiB."""

_LITTLE_BYTES: Final = 32 << 10
"""Memory that is quicker to take than to reserve."""

_CONTAINERS: Final = frozenset({dict, list})
_BLOCK: Final = 64 << 10
_COLON: Final = ord(":")
_ENDS_NAME: Final = np.zeros(256, np.bool_)
_ENDS_NAME[list(b'" \t\r\n')] = True
"""What may stand before the colon behind a member's name."""


def parse_quickly(data: bytes | bytearray | memoryview) -> list[Any]:
    """Parse a text whose depth has been checked.

    Returns:
        The value, alone in a list; an empty list if the strict way has to decide.
    """
    quick = parse_unchecked(data)
    # A colon follows each name. So there are at least as many colons of that kind as members. And if there are
    # not more colons than members in the result, then no member was lost because of a duplicate key.
    return quick if quick and count_members(quick[0]) == _count_colons(data) else []


def parse_unchecked(data: bytes | bytearray | memoryview) -> list[Any]:
    """Parse a text as `parse_quickly` does, but keep the last of two members of one name."""
    decode = _decoder()
    if decode is None or not _has_memory(_MOST_TIMES * len(data) + _ARENAS_BYTES):
        return []
    try:
        return [decode(data)]
    except Exception:  # noqa: BLE001 - its errors are no ValueError before msgspec 0.21
        return []


_FLOAT_BYTES: Final = 100
"""Memory for the text of a float, at most: a float has up to 25 characters, and the buffer is made anew as it grows."""

_SAMPLES: Final = [1e-4, 0.00012345678901234567, 1 / 3, -0.1, 0.0, -0.0, 100.0, 123456789012345.6, 1e15, 1e16 - 2]
_OTHER_SAMPLES: Final = [9.999999999999999e-05, 1e-5, 5e-324, 1e16, 1.2345678901234567e16, math.inf, math.nan]


def write_floats(values: list[float]) -> bytes | None:
    """Return the JSON array of floats as the package writes it; see `may_differ`. None if it cannot."""
    encode = _float_encoder()
    return encode(values) if encode is not None and _has_memory(_FLOAT_BYTES * len(values)) else None


def may_differ(text: bytes) -> bool:
    """Tell whether one of these floats, as the package has written them, may be another text than that of `repr`.

    These are floats with an exponent, floats that are not finite, which are `null`, and floats below 0.0001.
    """
    return b"e" in text or b"n" in text or b"0.0000" in text


def writes_floats() -> bool:
    """Tell whether the package is installed, and writes floats as `repr` does."""
    return _float_encoder() is not None


@cache
def _float_encoder() -> Callable[[list[float]], bytes] | None:
    """Find the package at its first use; None without it, or if a later version writes floats in another form."""
    try:
        from msgspec.json import Encoder  # noqa: PLC0415 - as for the decoder
    except ImportError:
        return None
    encode: Callable[[list[float]], bytes] = Encoder().encode
    is_usual = encode(_SAMPLES).decode() == f"[{','.join(map(repr, _SAMPLES))}]"
    return encode if is_usual and all(may_differ(encode([value])) for value in _OTHER_SAMPLES) else None


def find_parser() -> None:
    """Import the package now, if it is installed, so that the first large text does not wait for it: it takes 10 ms."""
    _decoder()
    _float_encoder()


@cache
def _decoder() -> Callable[[bytes | bytearray | memoryview], Any] | None:
    """Find the package at its first use; None without it."""
    try:
        from msgspec.json import Decoder  # noqa: PLC0415 - most programs never come here
    except ImportError:
        return None
    decode: Callable[[bytes | bytearray | memoryview], Any] = Decoder().decode
    return decode


def _has_memory(nbytes: int) -> bool:
    """Whether the system has `nbytes` of memory now. If they are many, only address space is reserved."""
    try:
        if nbytes <= _LITTLE_BYTES:
            bytes(nbytes)
            return True
        mmap.mmap(-1, nbytes, access=mmap.ACCESS_COPY).close()  # private, unlike the default
    except (OSError, MemoryError):
        return False
    return True


def count_members(value: object) -> int:
    """Count the members of all objects, except objects in mixed lists, which a header does not have."""
    count = 0
    if type(value) is dict:
        count = len(value)
        for member in value.values():
            if type(member) in _CONTAINERS:  # most are not, and a call would take longer
                count += count_members(member)
    elif type(value) is list and value and type(value[0]) is dict:
        count = sum(map(count_members, value))
    return count


def _count_colons(data: bytes | bytearray | memoryview) -> int:
    """Count the colons that may stand behind a name."""
    text = np.frombuffer(data, np.uint8)
    count = 0
    for start in range(0, len(text), _BLOCK):
        block = text[start : start + _BLOCK]
        if b":" in block.tobytes():  # a quick answer for most blocks of numbers
            colons = np.flatnonzero(block == _COLON) + start
            count += int(np.count_nonzero(_ENDS_NAME[text[colons - 1]]))
    return count
