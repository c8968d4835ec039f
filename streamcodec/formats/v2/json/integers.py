"""JSON integers: the text of many integers or booleans at once, without a Python object for each.

Each value becomes a row of fixed width: a comma, a sign, and digits in groups of four. The text of each group is looked
up in a table. A missing sign and leading zeros are zero bytes, and one pass over all rows removes them. For integers of
8 bits and booleans, a table has the whole row. The length is computed without the text: a value has one digit more for
each power of ten that it reaches.

Nanoseconds for a value, 8,192 at a time, numpy 2.4, one core:

| values | `json.dumps(array.tolist())` | text | length |
| --- | --- | --- | --- |
| BOOL | 78 | 13 | 0.1 |
| INT8 | 109 | 18 | 2 |
| INT64 below 30,000 | 106 | 48 | 5 |
| INT64 of any size | 132 | 91 | 25 |
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = np.ndarray[Any, Any]

Texts = npt.NDArray[Any]
"""Rows of uint32. Each number is four characters, the first one in the lowest byte. Zero bytes are not characters."""

GROUP: Final = 10_000
"""Number of values of a group of four digits."""

PLACES: Final = np.array([1000, 100, 10, 1])
"""The values of the digits of a group."""

_POWERS: Final = [10**exponent for exponent in range(1, 20)]
COMMA: Final = ord(",")
SIGN: Final = ord("-") << 8


def integers_as_text(values: Array) -> bytes:
    """Return the JSON text of integers or booleans, each behind a comma.

    Args:
        values: of one dimension, at least one.
    """
    if values.itemsize == 1:
        rows = _rows_of_octets(values.dtype.kind).take(values.view(np.uint8))
        return rows.tobytes().translate(None, b"\0")
    magnitudes = _magnitudes(values)
    group_count = -(-len(str(magnitudes.max())) // 4)
    rows = np.empty((len(values), 1 + group_count), "<u4")
    rows[:, 0] = COMMA
    if values.dtype.kind == "i":
        rows[:, 0] += (values < 0).astype("<u4") * np.uint32(SIGN)
    write_groups(magnitudes, rows[:, 1:])
    return rows.tobytes().translate(None, b"\0")


def length_of_integers(values: Array) -> int:
    """Return the length of the text of `integers_as_text`."""
    count = len(values)
    if values.dtype.kind == "b":
        return len(",false") * count - int(np.count_nonzero(values))
    length = 2 * count
    lowest, highest = int(values.min()), int(values.max())
    for power in _POWERS:
        if power <= highest:
            length += int(np.count_nonzero(values >= power))
        if -power >= lowest:
            length += int(np.count_nonzero(values <= -power))
    return length + (int(np.count_nonzero(values < 0)) if lowest < 0 else 0)


def write_groups(magnitudes: npt.NDArray[np.uint64], columns: Texts) -> None:
    """Write integers without leading zeros; for 0, one zero remains.

    Args:
        magnitudes: less than `GROUP ** columns.shape[1]`.
        columns: memory for the text, of shape [count, groups].
    """
    leading, last = _leading_groups()
    table = last
    for column in range(columns.shape[1] - 1, -1, -1):
        higher = magnitudes // np.uint64(GROUP)
        group = (magnitudes - higher * np.uint64(GROUP)).astype(np.intp)
        group += (higher != 0) * GROUP
        columns[:, column] = table.take(group)
        magnitudes, table = higher, leading


def plain_groups() -> npt.NDArray[np.uint8]:
    """Return the four digits of each group, of shape [10000, 4]."""
    digits: npt.NDArray[np.uint8] = (np.arange(GROUP)[:, None] // PLACES % 10 + ord("0")).astype(np.uint8)
    return digits


def texts_of(groups: npt.NDArray[np.uint8]) -> Texts:
    """Return each row of four characters as one number."""
    return groups.view("<u4")[:, 0]


@cache
def _leading_groups() -> tuple[Texts, Texts]:
    """Return two tables of the texts of groups: for the first group of a number, and for a group after others."""
    plain = plain_groups()
    is_led = np.arange(GROUP)[:, None] >= PLACES
    leading = np.concatenate((texts_of(plain * is_led), texts_of(plain)))
    last = leading.copy()
    last[0] = ord("0") << 24
    return leading, last


@cache
def _rows_of_octets(kind: str) -> npt.NDArray[np.uint64]:
    """Return the row of each value of one byte, eight characters."""
    if kind == "b":
        texts = ["false", *["true"] * 255]
    else:
        texts = list(map(str, np.arange(256).astype(np.uint8).view(f"{kind}1").tolist()))
    return np.frombuffer("".join(f",{text:\0<7}" for text in texts).encode(), "<u8")


def _magnitudes(values: Array) -> npt.NDArray[np.uint64]:
    """Return the values without their signs; this works for the smallest INT64, too."""
    if values.dtype.kind == "u":
        return values.astype(np.uint64)
    return np.abs(values.astype(np.int64)).view(np.uint64)
