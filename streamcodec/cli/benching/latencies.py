"""Latencies: a histogram of times, in constant memory.

Each bucket is half a percent wider than the one before it, so a percentile is within half a percent of the true one.
The histograms of several processes can be added. The smallest and largest time and the mean are exact. Times are
collected in a list first, because numpy is quick only for many values at once: 3,000 take 0.1 ms.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

_LEAST: Final = 1e-6
_STEP: Final = math.log(1.005)
_BUCKETS: Final = math.ceil(math.log(1e5 / _LEAST) / _STEP)


class Latencies:
    """Times in seconds, as a histogram.

    Attributes:
        pending: times that are not in the histogram yet. Append to it, and call `settle` now and then.
        least: the smallest time; infinity if there is none.
        most: the largest time; 0 if there is none.
        total: the sum.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self.pending: list[float] = []
        self.least: float = math.inf
        self.most: float = 0.0
        self.total: float = 0.0
        self._counts = np.zeros(_BUCKETS, np.int64)

    def settle(self) -> None:
        """Move the pending times to the histogram."""
        if not self.pending:
            return
        times = np.array(self.pending)
        self.pending.clear()
        places = np.log(np.maximum(times, _LEAST) / _LEAST) / _STEP
        np.add.at(self._counts, np.minimum(places.astype(np.int64), _BUCKETS - 1), 1)
        self.least = min(self.least, float(times.min()))
        self.most = max(self.most, float(times.max()))
        self.total += float(times.sum())

    def add(self, other: Latencies) -> None:
        """Add those of another process."""
        self.settle()
        other.settle()
        self._counts += other._counts
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)
        self.total += other.total

    @property
    def count(self) -> int:
        """How many there are."""
        self.settle()
        return int(self._counts.sum())

    @property
    def mean(self) -> float:
        """The mean; 0 if there is none."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """Return the time within which so many percent ended; 0 if there is none."""
        if not self.count:
            return 0.0
        rank = max(1, math.ceil(self.count * percent / 100))
        if rank >= self.count:
            return self.most
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        middle = _LEAST * math.exp((bucket + 0.5) * _STEP)
        return min(max(middle, self.least), self.most)
