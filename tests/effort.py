"""Effort: how much a round of the tests tries.

The ordinary round is for whoever has changed something, and takes a minute or two. It cuts each message in two at a few
places, and tries each property with a few examples. With `STREAMCODEC_EXHAUSTIVE=1` in the environment, messages are
cut at every place, and properties get as many examples as their tests ask for. `.ci/run` does both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

IS_EXHAUSTIVE: Final = os.environ.get("STREAMCODEC_EXHAUSTIVE", "0") not in {"", "0"}

_PLACES: Final = 12
_EXAMPLES: Final = 25


def places(cuts: Sequence[int]) -> Sequence[int]:
    """Return where to cut a message: at each of these places, or at some, of which are the first and the last."""
    if IS_EXHAUSTIVE or len(cuts) <= _PLACES:
        return cuts
    last = len(cuts) - 1
    return [cuts[index * last // (_PLACES - 1)] for index in range(_PLACES)]


def examples(count: int) -> int:
    """Return how many examples a property is tried with, of those that its test asks for."""
    return count if IS_EXHAUSTIVE else min(count, _EXAMPLES)
