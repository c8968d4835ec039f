"""Units: how a value in units of the SI is written for readers."""

from __future__ import annotations

from typing import Final

_SCALES: Final[dict[str, tuple[tuple[float, str], ...]]] = {
    "s": ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")),
    "B": ((1.0, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")),
    "B/s": ((1e6, "MB/s"), (1e9, "GB/s")),
    "s/B": ((1e-9, "ns per byte"),),
    "1/s": ((1.0, "/s"),),
    "ratio": ((1.0, ""),),
    "count": ((1.0, ""),),
}
"""For each unit: how large each way of writing it is, and its name."""

UNITS: Final = frozenset(_SCALES)
"""All there are."""


def scale_of(unit: str, value: float) -> tuple[float, str]:
    """Return the way of writing that suits a value: the largest that leaves it at 1 or more."""
    scales = _SCALES[unit]
    return next((scale for scale in reversed(scales) if abs(value) >= scale[0]), scales[0])


def written(value: float, factor: float) -> str:
    """Write a value with three digits that mean something."""
    scaled = value / factor
    size = abs(scaled)
    if size >= 100 or scaled == int(scaled):
        return f"{scaled:,.0f}"
    return f"{scaled:.1f}" if size >= 10 else f"{scaled:.2f}" if size >= 0.1 else f"{scaled:.3g}"


def with_unit(unit: str, value: float) -> str:
    """Write a value with its unit."""
    factor, name = scale_of(unit, value)
    return f"{written(value, factor)} {name}".rstrip()
