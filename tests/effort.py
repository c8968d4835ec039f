"""Effort: how much a round of the tests tries.

The ordinary round is for whoever has changed something, and takes a minute or two. It cuts each message in two at a few
places, tries each property with a few examples, and each test with a few of its parameter sets. A round of one folder
or file has all parameter sets, unless `STREAMCODEC_THINNED=1` is in the environment. With `STREAMCODEC_EXHAUSTIVE=1`
every round has them, messages are cut at every place, and properties get as many examples as their tests ask for.
`.ci/run` does all of this. With `STREAMCODEC_BUSY=1` each turn of an event loop is over after a twentieth of its time,
as on a machine where everything takes long: what comes out must be the same.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeVar

import pytest


def _is_set(name: str) -> bool:
    return os.environ.get(name, "0") not in {"", "0"}


IS_EXHAUSTIVE: Final = _is_set("STREAMCODEC_EXHAUSTIVE")
IS_THINNED: Final = _is_set("STREAMCODEC_THINNED")
IS_BUSY: Final = _is_set("STREAMCODEC_BUSY")

_PLACES: Final = 12
_EXAMPLES: Final = 25
_PARAMETER_SETS: Final = 3

_PARTS: Final = 2

_T = TypeVar("_T")


def places(cuts: Sequence[int], most: int = _PLACES) -> Sequence[int]:
    """Return where to cut a message: at each of these places, or at some, of which are the first and the last."""
    return cuts if IS_EXHAUSTIVE else _some(cuts, most)


def examples(count: int) -> int:
    """Return how many examples a property is tried with, of those that its test asks for."""
    return count if IS_EXHAUSTIVE else min(count, _EXAMPLES)


def parts(count: int) -> list[object]:
    """Return the numbers of the parts of a test that draws a million cases, as parameters.

    The ordinary round has the first one. An exhaustive round has all; those from the third on are marked as `quiet`.
    """
    if not IS_EXHAUSTIVE:
        return [0]
    return [pytest.param(part, marks=pytest.mark.quiet if part >= _PARTS else ()) for part in range(count)]


def thinned(tests: Iterable[tuple[Hashable, _T]]) -> tuple[list[_T], list[_T]]:
    """Return the tests of a round, and those it leaves out: of each function, some parameter sets are tried.

    Args:
        tests: function and test, in order.
    """
    of_function: dict[Hashable, list[_T]] = defaultdict(list)
    for function, test in tests:
        of_function[function].append(test)
    kept = [test for group in of_function.values() for test in _some(group, _PARAMETER_SETS)]
    identities = {id(test) for test in kept}
    return kept, [test for group in of_function.values() for test in group if id(test) not in identities]


def _some(things: Sequence[_T], count: int) -> Sequence[_T]:
    """Return at most so many things, of which are the first and the last."""
    if len(things) <= count:
        return things
    last = len(things) - 1
    return [things[index * last // (count - 1)] for index in range(count)]
