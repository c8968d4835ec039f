"""Figures: what a scenario hands back, in units of the SI, and what was asked for.

A figure knows its own bound, so whether it is reached is computed in one place, and no page can say otherwise. All of
this is data: it goes to `results.json` and comes back from there, so that pages and plots can be drawn again without
measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.benchmarks.measure import Spread
from tests.benchmarks.peers import Peers, Running

MIB: Final = 1 << 20
OURS: Final = "streamcodec"
INLINE: Final = "inline; access log off"
"""What most scenarios serve."""
DEFAULT_TOO: Final = f"default where it says so, else {INLINE}"
"""What those serve that compare the two."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a figure must reach."""

    relation: str
    """`>=` or `<=`."""
    value: float

    def holds(self, value: float) -> bool:
        """Tell whether a value reaches it."""
        return value >= self.value if self.relation == ">=" else value <= self.value


def at_least(value: float) -> Bound:
    """Ask for so much or more."""
    return Bound(">=", value)


def at_most(value: float) -> Bound:
    """Ask for so much or less."""
    return Bound("<=", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured thing."""

    case: str
    """What was done, as `64 MiB`."""
    quantity: str
    """What was measured, as `time`."""
    who: str
    """Whose it is: `streamcodec`, a peer, or `Triton / streamcodec` for a ratio of the two."""
    unit: str
    """One of `units.UNITS`."""
    spread: Spread
    bound: Bound | None = None

    @property
    def is_reached(self) -> bool:
        """Whether the median is within the bound; true if nothing was asked for."""
        return self.bound is None or self.bound.holds(self.spread.median)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A plot of all figures of one quantity: a bar for each, grouped by case."""

    quantity: str
    title: str
    is_curve: bool = False
    """Whether it has curves instead: one over all cases, in their order, for each `who`."""


@dataclass(slots=True)
class Figures:
    """All that a scenario has to report."""

    figures: list[Figure] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What could not be measured, and why."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of whoever else took part."""

    def add(
        self, case: str, quantity: str, who: str, unit: str, values: Iterable[float], *, bound: Bound | None = None
    ) -> None:
        """Report the measurements of one thing, in the order in which the page shall show them."""
        spread = Spread.of(values)
        self.figures.append(Figure(case=case, quantity=quantity, who=who, unit=unit, spread=spread, bound=bound))

    def name(self, servers: Iterable[Running]) -> None:
        """Note which peers took part."""
        self.versions |= {server.name: server.version for server in servers if server.version}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a scenario is run with."""

    peers: Peers
    work: Path
    """An empty directory, gone afterwards."""
    is_quick: bool = False

    def choose(self, full: int, quick: int) -> int:
        """Return a number of rounds, or whatever else makes a quick run quick."""
        return quick if self.is_quick else full


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One part of the page."""

    title: str
    about: str | None
    """The docstring of its file: what is compared, and why that is fair."""
    run: Callable[[Options], Figures]
    served: str | None = None
    """Which models our server had, how they run, and whether it had its access log; None if it took no part."""
    is_wide: bool = False
    """Whether the page shows one line for each case, with a column for each server; else one line for each figure."""
