"""Leftovers: what is left of something that was done some times without the garbage collector.

An object in a reference cycle is freed when the collector runs. For the budget of a server it has ceased to count long
before. So whoever can cause such cycles that hold tensors can make a server use any amount of memory.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.server.lanes import eventually

MIB = 1 << 20
_ALLOWED = MIB // 4
"""What may be left of anything: far less than the tensors of one request."""

_ATTEMPTS = 3
_A_MOMENT = 0.05
"""Until a server has noticed what was done last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left after some time."""

    garbage: int
    """Bytes that only the collector has freed."""
    held: int
    """Bytes that something still refers to."""
    kinds: str
    """The most frequent classes of the garbage."""

    @property
    def is_little(self) -> bool:
        """Whether it is far less than a tensor, and so nothing of one."""
        return self.nbytes <= _ALLOWED

    @property
    def nbytes(self) -> int:
        """What was left before the collector ran, or is left after it."""
        return max(self.garbage + self.held, self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something is done."""

    reserved: Callable[[], int] = int
    """Bytes that it uses now."""
    idle: Callable[[], int] = int
    """Bytes that it keeps on purpose, as those of a pool."""

    def is_at_rest(self) -> bool:
        return self.reserved() == 0

    def counted(self) -> int:
        return tracemalloc.get_traced_memory()[0] - self.idle()


NOWHERE = Place()


@contextmanager
def no_collector() -> Iterator[None]:
    """Count memory, and collect no garbage, until the block ends."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


def left_of(do: Callable[[], object], count: int, place: Place = NOWHERE, seconds: float = 3.0) -> Left:
    """Do something once, so that all is imported and kept that is kept once, and then some times more.

    A cycle leaves its memory each time. What other threads of a busy machine have not given up yet does not stay. So
    the least of a few attempts counts.

    Args:
        do: leaves nothing behind, after some time.
        count: how often.
        place: where it is done.
        seconds: to wait until what is left has become little.
    """
    do()
    found = [_left_once(do, count, place, seconds)]
    while not found[-1].is_little and len(found) < _ATTEMPTS:
        found.append(_left_once(do, count, place, seconds))
    return min(found, key=lambda left: left.nbytes)


def _left_once(do: Callable[[], object], count: int, place: Place, seconds: float) -> Left:
    time.sleep(_A_MOMENT)
    eventually(place.is_at_rest, seconds)
    gc.collect()
    before = place.counted()
    for _ in range(count):
        do()
    time.sleep(_A_MOMENT)
    eventually(lambda: place.is_at_rest() and place.counted() - before <= _ALLOWED, seconds)
    left = place.counted() - before
    kinds = _kinds() if left > _ALLOWED else ""
    gc.collect()
    held = place.counted() - before
    return Left(garbage=left - held, held=held, kinds=kinds)


def _kinds() -> str:
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    kinds = Counter(type(each).__qualname__ for each in gc.garbage)
    gc.garbage.clear()
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(30))
