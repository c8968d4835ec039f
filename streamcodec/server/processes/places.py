"""Places: when a worker is started again after one has died. Time is an argument; a place knows no process.

While nobody else serves, a new worker starts at once: each moment is one without answers. While others serve, one that
has died soon after its start makes the next one wait, longer each time, because it may die for the same reason, such as
a request that comes again and again. One that has died before it was ready makes the next one wait in any case: its
models or its certificate cannot be loaded now.
"""

from __future__ import annotations

import math
from typing import Final

_SHORT_SECONDS: Final = 10.0
"""A worker that has lived for less has died soon."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


class Place:
    """A place for a worker, and what has become of those that had it.

    Attributes:
        due: when the next worker starts; infinite if nobody is missing.
        false_starts: deaths before the worker was ready, one after the other.
    """

    def __init__(self, due: float) -> None:
        """Begin without a worker; the first one starts at this time."""
        self.due = due
        self.false_starts = 0
        self._short_lives = 0

    def filled(self) -> None:
        """Note that a worker has been started."""
        self.due = math.inf

    def lost(self, now: float, *, lived: float, was_ready: bool) -> None:
        """Plan for the next worker.

        Args:
            now: seconds, by any clock.
            lived: seconds from the start of the worker to its end.
            was_ready: whether it had been ready.
        """
        if not was_ready:
            self.false_starts += 1
            pauses = self.false_starts
        elif lived < _SHORT_SECONDS:
            self.false_starts = 0
            pauses = self._short_lives
            self._short_lives += 1
        else:
            self.false_starts = pauses = self._short_lives = 0
        self.due = now + (min(_FIRST_PAUSE * 2.0 ** min(pauses - 1, 10), _LONGEST_PAUSE) if pauses else 0.0)

    def hurry(self, now: float) -> None:
        """If a worker is missing, start it at once, because nobody else serves; unless the last one could not start."""
        if self.due < math.inf and not self.false_starts:
            self.due = now
