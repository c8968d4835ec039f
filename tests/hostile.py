"""Hostile texts: JSON headers that are wrong where it costs most to find out, in any size.

Each comes as a pair: the text that is refused, and one that is accepted and differs from it in a few bytes. A refusal
may not cost much more than an acceptance: who is refused has no reason to be careful.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

DEEP: Final = 100
"""Levels, within the limit."""

_MOST_VALUES: Final = 15_000
"""More than some thousand values that no tensor has are refused for that alone."""

_FORMAT_CHARACTER: Final = "\U000e0001"
"""Four bytes in UTF-8, ten where a message shows it escaped."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A text that is refused, and its like that is accepted."""

    refused: bytes
    accepted: bytes


def entry(datatype: str, count: int, values: str) -> bytes:
    """Return a header with one JSON tensor."""
    return f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[{count}],"data":[{values}]}}]}}'.encode()


def _at_the_end(datatype: str, usual: str, wrong: str, right: str | None = None) -> Callable[[int], Pair]:
    """Make texts of so many bytes whose last value alone is wrong."""

    def make(nbytes: int) -> Pair:
        count = max(2, nbytes // (len(usual) + 1))
        values = f"{usual}," * (count - 1)
        return Pair(entry(datatype, count, values + wrong), entry(datatype, count, values + (right or usual)))

    return make


def _too_many(nbytes: int) -> Pair:
    count = nbytes // 2
    return Pair(entry("INT8", count, "1," * count + "1"), entry("INT8", count, "1," * (count - 1) + "1"))


def _ragged(nbytes: int) -> Pair:
    count = nbytes // 6
    rows = "[1,1]," * (count - 1)
    head = f'{{"inputs":[{{"name":"x","datatype":"INT8","shape":[{count},2],"data":['
    return Pair(*(f"{head}{rows}{last}]}}]}}".encode() for last in ("[1]", "[1,1]")))


def _deep_keys(nbytes: int) -> Pair:
    """NaN far behind and far below, in a member that no tensor has; each level's key would be part of its path."""
    key = _FORMAT_CHARACTER * max(1, nbytes // (8 * DEEP))
    values = "1," * min(nbytes // 4, _MOST_VALUES)

    def text(last: str) -> bytes:
        nested = f'{{"{key}":' * DEEP + f"[{values}{last}]" + "}" * DEEP
        return f'{{"inputs":[],"parameters":{{"a":{nested}}}}}'.encode()

    return Pair(text("NaN"), text("1"))


def _duplicate(nbytes: int) -> Pair:
    members = "".join(f'"{number:07}":0,' for number in range(nbytes // 12))

    def text(last: str) -> bytes:
        return f'{{"inputs":[],"parameters":{{{members}"{last}":0}}}}'.encode()

    return Pair(text(f"{0:07}"), text("another"))


def _surrogate(nbytes: int) -> Pair:
    pairs = r"\ud83d\ude00" * (nbytes // 12)
    return Pair(*(f'{{"inputs":[],"parameters":{{"a":"{pairs}{last}"}}}}'.encode() for last in (r"\ud83d", "a")))


def _open(nbytes: int) -> Pair:
    """A text that ends before it is complete."""
    pair = _at_the_end("FP32", "1", "1")(nbytes)
    return Pair(pair.accepted[:-2] + b"  ", pair.accepted)


TEXTS: Final[dict[str, Callable[[int], Pair]]] = {
    "a float too large": _at_the_end("FP32", "1", "1e39"),
    "a float too large, among floats": _at_the_end("FP32", "0.125", "1e39"),
    "a double too large": _at_the_end("FP64", "1", "1e999"),
    "an integer too large": _at_the_end("INT8", "1", "128"),
    "a negative among unsigned": _at_the_end("UINT64", "1", "-1"),
    "a fraction among integers": _at_the_end("INT32", "1", "1.5"),
    "a string among floats": _at_the_end("FP32", "1", '"1"'),
    "a null among floats, and NaN": _at_the_end("FP32", "NaN", "null"),
    "an object among integers": _at_the_end("INT8", "1", "{}"),
    "a number among booleans": _at_the_end("BOOL", "true", "2"),
    "a number among strings": _at_the_end("BYTES", '"a"', "1"),
    "half a surrogate among strings": _at_the_end("BYTES", '"a"', r'"\ud800"'),
    "a value too many": _too_many,
    "a row too short": _ragged,
    "NaN below long keys": _deep_keys,
    "a member twice": _duplicate,
    "half a surrogate at the end": _surrogate,
    "brackets missing at the end": _open,
}
"""By what is wrong; each makes a pair of about so many bytes."""
