"""Dates: the `Date` of responses (RFC 9110, section 6.6.1), written once a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Dates:
    """The time as HTTP writes it."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Read the time from a clock, in seconds since 1970."""
        self._clock = clock
        self._date = b""
        self._since = self._until = math.inf

    def now(self) -> str:
        """Return the date of a response that is made now."""
        return self.encoded().decode("ascii")

    def encoded(self) -> bytes:
        """Return the same date as it is sent, in bytes."""
        now = self._clock()
        if not self._since <= now < self._until:  # the clock may have been put back
            self._since = math.floor(now)
            self._until = self._since + 1
            self._date = http_date(now).encode("ascii")
        return self._date


def http_date(seconds: float) -> str:
    """Return a time as `Sun, 06 Nov 1994 08:49:37 GMT`, in English whatever the locale.

    Args:
        seconds: since 1970.
    """
    year, month, day, hour, minute, second, weekday, *_ = time.gmtime(seconds)
    return f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year:04} {hour:02}:{minute:02}:{second:02} GMT"
