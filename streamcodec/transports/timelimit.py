"""Time limit: how long a call may take in all, whatever moves meanwhile.

A limit on time without progress is no limit for a peer that sends a byte, or an interim response, now and then. So a
call has this one besides, which nothing prolongs but the pauses in which the caller is busy with what has come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager


class TimeLimit:
    """The time of one call; it runs from the beginning."""

    def __init__(self, seconds: float | None) -> None:
        """Allow so many seconds; None for ever."""
        self._seconds = math.inf if seconds is None else seconds
        self._end = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._end

    @property
    def left(self) -> float:
        """Seconds that are left; infinity if there is no limit.

        Raises:
            TimeoutError: there are none.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.exceeded()
        return left

    def at_most(self, seconds: float | None) -> float | None:
        """Return for how long to wait, if that is so many seconds at most; None for ever.

        Raises:
            TimeoutError: no time is left.
        """
        longest = min(self.left, math.inf if seconds is None else seconds)
        return None if longest == math.inf else longest

    def too_long(self, timeout: float | None) -> TimeoutError:
        """Return the error for a wait of `at_most(timeout)` in which nothing has moved."""
        if timeout is None or self.is_over:
            return self.exceeded()
        return TimeoutError(f"nothing has moved for {timeout:g} seconds")

    def exceeded(self) -> TimeoutError:
        """Return the error for a call that has taken all its time."""
        return TimeoutError(f"the call has not ended within its total_timeout of {self._seconds:g} seconds")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the time stand still while the caller is busy."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._end += time.monotonic() - start
