"""CPU seconds that an act takes: the least of some attempts, for what else runs can only make an act take longer.

Nothing here knows a wall clock. A test that judges times of a clock is `quiet`; one that judges CPU takes the least.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

ATTEMPTS: Final = 5


def cpu_seconds(act: Callable[[], object]) -> float:
    """Return the CPU seconds that this thread takes to act once, without the garbage collector."""
    was_collecting = gc.isenabled()
    gc.disable()  # it would go through the objects of all tests
    try:
        began = time.thread_time()
        act()
        return time.thread_time() - began
    finally:
        if was_collecting:
            gc.enable()


def least_cpu_seconds(act: Callable[[], object], enough: float = 0.0) -> float:
    """Return the least of some attempts; one that takes at most `enough` is the last."""
    least = cpu_seconds(act)
    for _ in range(ATTEMPTS - 1):
        if least <= enough:
            break
        least = min(least, cpu_seconds(act))
    return least
