"""Statistics of windows are those of the whole, whatever the windows are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import DATATYPES
from streamcodec.engine.datatypes import Datatype
from streamcodec.inspection.statistics import Running, numbers

Values = np.ndarray[Any, Any]


def _in_windows(values: Values, size: int) -> Running:
    running = Running()
    for start in range(0, len(values), size):
        running.add(values[start : start + size])
    return running


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<f2", "i1", "<u8"])
def test_windows_do_not_matter(dtype: str, size: int) -> None:
    values = (np.random.default_rng(1).normal(size=1000) * 50 + 60).clip(0, 120).astype(dtype)
    statistics = _in_windows(values, size).result()
    assert statistics is not None
    assert (statistics.count, statistics.minimum, statistics.maximum) == (1000, values.min(), values.max())
    assert statistics.mean == pytest.approx(values.astype(float).mean())
    histogram = statistics.histogram
    assert histogram is not None
    assert sum(histogram.counts) == 1000
    assert len(histogram.counts) <= 33
    edges = histogram.start + histogram.width * np.arange(len(histogram.counts) + 1)
    below = np.cumsum(histogram.counts)
    slack = histogram.width * 1e-3
    for edge, count in zip(edges[1:], below, strict=True):  # a count is right, up to values at the edge itself
        assert (values.astype(float) < edge - slack).sum() <= count <= (values.astype(float) <= edge + slack).sum()


def test_what_is_not_finite_is_counted_apart() -> None:
    running = Running()
    running.add(np.array([np.nan, 1, np.inf, -np.inf, 3], "<f4"))
    running.add(np.array([np.nan, np.nan], "<f4"))
    statistics = running.result()
    assert statistics is not None
    assert (statistics.count, statistics.nan_count, statistics.infinity_count) == (7, 3, 2)
    assert (statistics.minimum, statistics.maximum, statistics.mean) == (1, 3, 2)


@pytest.mark.parametrize("windows", [[[np.nan]], [[np.inf], [-np.inf]]])
def test_nothing_finite(windows: list[list[float]]) -> None:
    running = Running()
    for window in windows:
        running.add(np.array(window))
    statistics = running.result()
    assert statistics is not None
    assert (statistics.minimum, statistics.maximum, statistics.mean, statistics.histogram) == (None, None, None, None)


def test_no_values() -> None:
    running = Running()
    running.add(np.empty(0, "<f4"))
    assert running.result() is None


def test_one_value_repeated_and_then_another() -> None:
    running = Running()
    for window in ([0, 0], [0], [5, 5], [5, -5]):
        running.add(np.array(window, "<i4"))
    statistics = running.result()
    assert statistics is not None
    assert statistics.histogram is not None
    assert sum(statistics.histogram.counts) == 7
    assert (statistics.histogram.counts[0], statistics.histogram.counts[-1]) == (1, 3)


def test_a_constant_has_one_bar() -> None:
    statistics = _in_windows(np.full(10, 2.5), 3).result()
    assert statistics is not None
    assert statistics.histogram is not None
    assert (statistics.histogram.start, statistics.histogram.end, statistics.histogram.counts) == (2.5, 2.5, (10,))


@pytest.mark.parametrize("windows", [[[-1.7e308, 1.7e308]], [[0, 1], [1.7e308], [-1.7e308]], [[0, 5e-324]]])
def test_ranges_beyond_fp64_have_no_histogram_and_no_error(windows: list[list[float]]) -> None:
    running = Running()
    for window in windows:
        running.add(np.array(window))
    statistics = running.result()
    assert statistics is not None
    assert statistics.histogram is None


def test_the_greatest_integers() -> None:
    statistics = _in_windows(np.array([2**64 - 1, 2**64 - 2, 0], "<u8"), 2).result()
    assert statistics is not None
    assert (statistics.maximum, statistics.minimum) == (2**64 - 1, 0)


def test_numbers_of_unusual_types() -> None:
    bits = np.array([0x3F80, 0xC020], "<u2")
    assert numbers(bits, DATATYPES["BF16"]).tolist() == [1, -2.5]  # type: ignore[union-attr]  # never None
    assert numbers(np.array([True, False]), DATATYPES["BOOL"]).tolist() == [1, 0]  # type: ignore[union-attr]  # the same
    for dtype in ("<c8", "S3", "V4", "<M8[s]"):
        assert numbers(np.zeros(2, dtype), Datatype("x", np.dtype(dtype))) is None
    assert numbers(np.zeros(2, "<f8"), DATATYPES["FP64"]) is not None


def test_bfloat16_of_the_package() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    found = numbers(np.array([1, -2.5], bfloat16), DATATYPES["BF16"])
    assert found is not None
    assert found.tolist() == [1, -2.5]
