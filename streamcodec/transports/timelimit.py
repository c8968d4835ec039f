"""Time limit: how long a call may take in all, even if there is progress.

A limit on the time without progress does not stop a peer that sends a byte, or an interim response, from time to time.
So a call also has this limit. It is prolonged only while the caller is busy with what has arrived.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_EARLY_SECONDS: Final = 0.001
"""How much too early a timer of an event loop may end: uvloop counts milliseconds."""


class TimeLimit:
    """The time of one call. It runs from the creation of the object."""

    def __init__(self, seconds: float | None) -> None:
        """Allow `seconds` seconds; None for no limit."""
        self._seconds = math.inf if seconds is None else seconds
        self._end = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        """Whether no time is left, as seen when a timer that was set for it has ended."""
        return time.monotonic() >= self._end - _EARLY_SECONDS

    def allows(self, seconds: float) -> bool:
        """Whether more than so many seconds are left."""
        return time.monotonic() + seconds < self._end

    @property
    def left(self) -> float:
        """Seconds that are left; infinity if there is no limit.

        Raises:
            TimeoutError: no time is left.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.exceeded()
        return left

    def at_most(self, seconds: float | None) -> float | None:
        """Return how long to wait: at most `seconds`, and at most the time that is left; None for ever.

        Raises:
            TimeoutError: no time is left.
        """
        longest = min(self.left, math.inf if seconds is None else seconds)
        return None if longest == math.inf else longest

    def too_long(self, timeout: float | None) -> TimeoutError:
        """Return the error for a wait of `at_most(timeout)` without progress."""
        if timeout is None or self.is_over:
            return self.exceeded()
        return TimeoutError(f"nothing has moved for {timeout:g} seconds")

    def exceeded(self) -> TimeoutError:
        """Return the error for a call that has used all its time."""
        return TimeoutError(f"the call has not ended within its total_timeout of {self._seconds:g} seconds")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the time while the caller is busy."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._end += time.monotonic() - start
