"""Differences: the first difference between two values that should be equal.

Two logs of a message may have megabytes each, and the first difference is the most useful one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

_LONGEST: Final = 100
"""Characters of a value that are shown."""


def first_difference(found: object, expected: object) -> str | None:
    """Return the place and kind of the first difference; None if there is none.

    Named tuples, tuples and lists are compared item by item, and bytes one by one. Other values are compared by `==`.

    Example:
        >>> first_difference((1, b"abc"), (1, b"axc"))
        '[1]: byte 1 of 3 is 0x62 instead of 0x78'
    """
    return next(_differences(found, expected, ""), None)


def _differences(found: object, expected: object, path: str) -> Iterator[str]:
    match found, expected:
        case tuple() | list(), tuple() | list() if type(found) is type(expected):
            names = getattr(found, "_fields", None)
            for index, (one, other) in enumerate(zip(found, expected, strict=False)):
                yield from _differences(one, other, f"{path}[{index}]" if names is None else f"{path}.{names[index]}")
            if len(found) != len(expected):
                yield f"{path}: {len(found)} items instead of {len(expected)}"
        case bytes(), bytes() if found != expected:
            yield f"{path}: {_describe_bytes(found, expected)}"
        case float(), float() if math.isnan(found) and math.isnan(expected):
            return
        case _ if found != expected:
            yield f"{path}: {_shown(found)} instead of {_shown(expected)}"


def _describe_bytes(found: bytes, expected: bytes) -> str:
    if len(found) != len(expected):
        return f"{len(found)} bytes instead of {len(expected)}"
    index = next(index for index, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
    return f"byte {index} of {len(expected)} is {found[index]:#04x} instead of {expected[index]:#04x}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
