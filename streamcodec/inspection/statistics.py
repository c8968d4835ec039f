"""Statistics of values that come in windows: one pass, and memory that does not depend on their number.

The range of a histogram is not known before the last value. So the bins are given by the range of the first values, and
whenever a value is outside, neighbours are joined until the range is wide enough. Counts stay exact, and only the width
of the bins grows. Windows of one repeated value, as in a tensor of zeros, cost only the search for their extremes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from streamcodec.engine.datatypes import Datatype
from streamcodec.inspection.report import Histogram, Statistics

_BINS: Final = 64
_SHOWN_BINS: Final = 32
_SLACK: Final = 1e-6
"""Part of a bin by which a value may be outside, because the width was rounded."""

Values = np.ndarray[Any, Any]


def numbers(array: Values, datatype: Datatype) -> Values | None:
    """Return values as a flat array of integers or floats; None if they have no order, as complex numbers and texts."""
    flat = array.reshape(-1)
    kind = flat.dtype.kind
    if datatype.name == "BF16" and kind == "u":  # without `ml_dtypes`; the bits are the first half of FP32
        return (flat.view("<u2").astype("<u4") << 16).view("<f4")
    if kind == "b":
        return flat.view(np.uint8)
    if kind == "V" and flat.dtype.type is not np.void:  # of `ml_dtypes`
        return flat.astype(np.float32)
    if kind == "f":
        return flat if flat.itemsize <= np.dtype(float).itemsize else flat.astype(float)
    return flat if kind in "iu" else None


class Running:
    """The statistics of the values so far."""

    def __init__(self) -> None:
        """Begin without values."""
        self._count = self._finite = self._nans = self._infinities = 0
        self._minimum: int | float = math.inf
        self._maximum: int | float = -math.inf
        self._total = 0.0
        self._bins = _Bins()

    def add(self, values: Values) -> None:
        """Count in more values: a flat array of integers or floats, as `numbers` returns it."""
        self._count += values.size
        with np.errstate(all="ignore"):
            if values.dtype.kind == "f":
                values = self._finite_ones(values)
            if values.size:
                self._add_finite(values)

    def result(self) -> Statistics | None:
        """Return the statistics; None before the first value."""
        if not self._count:
            return None
        mean = self._total / self._finite if self._finite else math.nan
        return Statistics(
            count=self._count,
            minimum=self._minimum if self._finite else None,
            maximum=self._maximum if self._finite else None,
            mean=mean if math.isfinite(mean) else None,
            nan_count=self._nans,
            infinity_count=self._infinities,
            histogram=self._bins.result(),
        )

    def _finite_ones(self, values: Values) -> Values:
        if not values.size or np.isfinite([values.min(), values.max()]).all():
            return values
        nans = int(np.isnan(values).sum())
        finite: Values = values[np.isfinite(values)]
        self._nans += nans
        self._infinities += values.size - nans - finite.size
        return finite

    def _add_finite(self, values: Values) -> None:
        low, high = values.min().item(), values.max().item()
        self._minimum, self._maximum = min(self._minimum, low), max(self._maximum, high)
        self._finite += values.size
        if low == high:
            self._total += float(low) * values.size
            self._bins.add_constant(float(low), values.size)
        else:
            self._total += float(values.sum(dtype=float))
            self._bins.add(values, float(low), float(high))


class _Bins:
    """Counts in equal ranges, which double when a value is outside."""

    def __init__(self) -> None:
        self._counts: Values = np.zeros(_BINS, np.int64)
        self._start = 0.0
        self._width = 0.0  # 0 until there are two different values
        self._constant: float | None = None
        self._constant_count = 0
        self._is_lost = False

    def add_constant(self, value: float, count: int) -> None:
        if not self._width and self._constant in {None, value}:
            self._constant, self._constant_count = value, self._constant_count + count
        elif self._covers(value, value):
            self._counts[self._places(np.array([value]))] += count

    def add(self, values: Values, low: float, high: float) -> None:
        if low == high:  # integers that are one float
            self.add_constant(low, values.size)
        elif self._covers(low, high):
            self._counts += np.bincount(self._places(values), minlength=_BINS)

    def result(self) -> Histogram | None:
        if self._is_lost or (not self._width and self._constant is None):
            return None
        if not self._width:
            return Histogram(start=self._constant or 0.0, width=0.0, counts=(self._constant_count,))
        counts, width = self._counts, self._width
        used = np.flatnonzero(counts)
        first, last = int(used[0]), int(used[-1]) + 1
        if last - first > _SHOWN_BINS:
            first, last = first - first % 2, last + last % 2
            counts, width = counts.reshape(-1, 2).sum(axis=1), 2 * width
            start, first, last = self._start + first // 2 * width, first // 2, last // 2
        else:
            start = self._start + first * width
        return Histogram(start=start, width=width, counts=tuple(counts[first:last].tolist()))

    def _places(self, values: Values) -> Values:
        places = (values.astype(float) - self._start) / self._width
        return np.clip(places, 0, _BINS - 1).astype(np.intp)

    def _covers(self, low: float, high: float) -> bool:
        """Widen the range so that it has these values; return whether there is such a range of FP64."""
        if not self._width and not self._is_lost:
            self._begin(low, high)
        while not self._is_lost and (low - self._start) / self._width < -_SLACK:
            self._widen(downwards=True)
        while not self._is_lost and (high - self._start) / self._width > _BINS + _SLACK:
            self._widen(downwards=False)
        return not self._is_lost

    def _begin(self, low: float, high: float) -> None:
        if self._constant is not None:
            low, high = min(low, self._constant), max(high, self._constant)
        self._start, self._width = low, high / _BINS - low / _BINS
        self._is_lost = not (self._width and math.isfinite(high - low))
        if self._constant is not None and not self._is_lost:
            self._counts[self._places(np.array([self._constant]))] += self._constant_count

    def _widen(self, *, downwards: bool) -> None:
        pairs, empty = self._counts.reshape(-1, 2).sum(axis=1), np.zeros(_BINS // 2, np.int64)
        self._start -= self._width * _BINS if downwards else 0.0
        self._counts = np.concatenate((empty, pairs) if downwards else (pairs, empty))
        self._width *= 2
        self._is_lost = not (math.isfinite(self._start) and math.isfinite(self._start + self._width * _BINS))
