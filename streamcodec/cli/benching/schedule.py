"""Schedule: when requests are due.

In a closed loop, a request is due as soon as a connection is free. So a slow server is asked less often, and the times
when it was slow are few among the measured ones (coordinated omission).

In an open loop, requests are due at fixed times, whatever the server does. If no connection is free, a request waits,
and its latency counts from the time when it was due. So a pause of the server is in the latency of every request that
should have been sent meanwhile.
"""

from __future__ import annotations

import math


class ClosedLoop:
    """Requests are due at once, until the end."""

    def __init__(self, start: float, seconds: float) -> None:
        """Begin at a time of the monotonic clock."""
        self.end: float = start + seconds

    def due(self, now: float) -> float | None:
        """Return when the next request should begin; None if none is due."""
        return now if now < self.end else None

    def next_time(self, now: float) -> float:
        """Return when the next request will be due, if none is due now; infinity after the end."""
        return now if now < self.end else math.inf

    def left(self, now: float) -> int:  # noqa: ARG002 - as `OpenLoop`
        """Return how many requests were due and have not begun: none."""
        return 0


class OpenLoop:
    """Requests are due at regular times, until the end."""

    def __init__(self, start: float, seconds: float, rate: float) -> None:
        """Begin at a time of the monotonic clock, with so many requests per second."""
        self._start = start
        self._rate = rate
        self._count = max(1, math.floor(seconds * rate))
        self._begun = 0
        self.end: float = start + seconds

    def due(self, now: float) -> float | None:
        """Return when the next request should begin; None if none is due. It counts as begun."""
        time = self.next_time(now)
        if time > now or now >= self.end:
            return None
        self._begun += 1
        return time

    def next_time(self, now: float) -> float:
        """Return when the next request will be due; infinity after the last one, and after the end."""
        is_over = self._begun >= self._count or now >= self.end
        return math.inf if is_over else self._start + self._begun / self._rate

    def left(self, now: float) -> int:
        """Return how many requests were due and have not begun."""
        due = self._count if now >= self.end else min(self._count, math.floor((now - self._start) * self._rate) + 1)
        return due - self._begun


Schedule = ClosedLoop | OpenLoop
