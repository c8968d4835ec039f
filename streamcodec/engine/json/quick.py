"""Quick JSON: large texts, parsed by the optional package `msgspec` where it is installed.

This parser may only say yes. What it accepts, it reads as the standard library does: the same strings, exact integers,
the same doubles to the last bit (the tests compare the two). What it refuses, what it has no word for (NaN), and what
it would let pass (a member that occurs twice, deep nesting) is left to the strict way of `jsontext`, which then has the
only say. So verdicts and values are the same with and without the package; only the time differs.

Where the system refuses it memory, this parser ends the process. So as much as it could take is reserved before each
use, and given back at once. Where that cannot be had, the strict way parses, which only raises `MemoryError`.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

LEAST_BYTES = 64 << 10
"""Of a text for which this is worth while; importing the package takes as long as a hundred headers."""

_MOST_TIMES: Final = 48
"""Values are at most so many times as large in memory as their text: 37 times were measured, for `[[[1]]]`."""

_ARENAS_BYTES: Final = 2 << 20
"""The interpreter takes memory in pieces of 1 MiB."""

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
    decode = _decoder()
    if decode is None or not _has_memory(_MOST_TIMES * len(data) + _ARENAS_BYTES):
        return []
    try:
        value = decode(data)
    except Exception:  # noqa: BLE001 - its errors are no ValueError before msgspec 0.21
        return []
    # Behind every name stands a colon. So there are at least as many colons of that kind as members; and if there are
    # not more of them than members were kept, then none was lost to another of its name.
    return [value] if count_members(value) == _count_colons(data) else []


def find_parser() -> None:
    """Import the package now, where it is installed, and not when the first large text comes: that takes 10 ms."""
    _decoder()


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
    """Whether the system would give so much now. It is asked for address space, and no page of it is touched."""
    try:
        mmap.mmap(-1, nbytes, access=mmap.ACCESS_COPY).close()  # private, unlike the default
    except (OSError, MemoryError):
        return False
    return True


def count_members(value: object) -> int:
    """Count the members of all objects, but of those in lists of something else, where a header has none."""
    if isinstance(value, dict):
        return len(value) + sum(map(count_members, value.values()))
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return sum(map(count_members, value))
    return 0


def _count_colons(data: bytes | bytearray | memoryview) -> int:
    """Count the colons that may stand behind a name."""
    text = np.frombuffer(data, np.uint8)
    count = 0
    for start in range(0, len(text), _BLOCK):
        block = text[start : start + _BLOCK]
        if b":" in block.tobytes():  # quick to say no, as of most blocks of numbers
            colons = np.flatnonzero(block == _COLON) + start
            count += int(np.count_nonzero(_ENDS_NAME[text[colons - 1]]))
    return count
