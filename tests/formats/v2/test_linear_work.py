"""Work grows with the bytes and no faster: in every attack, four times the bytes take four times as many calls.

What is counted are calls, of Python functions and of those in C, so no clock has a say. What a single call does with
all the bytes it gets, calls do not show; that is measured by `python -m tests.benchmarks --only attacks`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from tests.attacks import ATTACKS

pytestmark = pytest.mark.slow

SCALE = 8
"""So that long headers are compared with long ones: short ones are read in another way."""

GROWTH = 4


def calls_of(act: Callable[[], object]) -> int:
    """Count the calls that are made within one."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", ATTACKS)
def test_four_times_the_bytes_take_four_times_the_calls(name: str) -> None:
    attack = ATTACKS[name]
    (small_bytes, small), (large_bytes, large) = attack(SCALE), attack(SCALE * GROWTH)
    large()  # makes what is made once, such as patterns
    growth = large_bytes / small_bytes
    assert calls_of(large) <= 1.1 * growth * calls_of(small) + 200
