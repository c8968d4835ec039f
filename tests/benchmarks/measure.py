"""Measuring: medians of interleaved runs, and plain tables.

Absolute times move by a fifth from run to run on a shared machine, so nothing here compares two runs. Variants are
measured in turn (A B A B ...) within one process, and compared round by round: what slows the machine for a while slows
both sides of a ratio. Wall time says what a user waits; CPU time says what it costs, and is steadier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement, in seconds per operation."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Spread:
    """What several measurements of one thing came to."""

    median: float
    low: float
    """The first quartile."""
    high: float
    """The third quartile."""
    count: int
    """How many there were."""

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Summarise measurements; one alone is its own quartiles."""
        taken = list(values)
        low, middle, high = quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else taken * 3
        return cls(middle, low, high, len(taken))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All rounds of one variant: medians, in seconds per operation."""

    wall: float
    cpu: float
    best_wall: float
    """The fastest round: how good it gets when nobody disturbs."""
    wall_ratio: float
    """Median over the rounds of this variant's time divided by the first variant's in the same round."""
    cpu_ratio: float
    """The same of CPU time; 0 if the first variant's was too short for the clock."""


Variant = Callable[[], Sample]
"""Runs one variant once."""


def timed(operation: Callable[[], object], count: int = 1, *, clock: Callable[[], float] = time.thread_time) -> Sample:
    """Run an operation several times in a row.

    Args:
        operation: what is measured.
        count: how often; enough that the clock's own cost and grain do not show.
        clock: of CPU time; `time.process_time` when other threads of this process do part of the work.
    """
    repeats = range(count)
    cpu = clock()
    wall = time.perf_counter()
    for _ in repeats:
        operation()
    wall = time.perf_counter() - wall
    cpu = clock() - cpu
    return Sample(wall=wall / count, cpu=cpu / count)


def variant(operation: Callable[[], object], count: int = 1) -> Variant:
    """Make a variant of an operation that can simply be repeated."""
    return lambda: timed(operation, count)


def interleaved(variants: Mapping[str, Variant], rounds: int) -> dict[str, Summary]:
    """Measure variants in turn.

    Args:
        variants: by name; the first is what the others are compared with.
        rounds: how often each is measured, after one round that is thrown away.
    """
    samples = in_turn(variants, rounds)
    first = next(iter(samples.values()))
    return {name: _summary(taken, first) for name, taken in samples.items()}


def in_turn(variants: Mapping[str, Callable[[], T]], rounds: int, *, warm_up: bool = True) -> dict[str, list[T]]:
    """Run variants in turn and return what each has returned, round by round.

    Args:
        variants: by name.
        rounds: how often each is run.
        warm_up: whether there is one more round, at the beginning, that is thrown away.
    """
    if warm_up:
        for run in variants.values():
            run()
    taken: dict[str, list[T]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            taken[name].append(run())
    return taken


def ratios(values: Iterable[float], bases: Iterable[float]) -> list[float]:
    """Compare round by round; a round whose base was too short for the clock does not count."""
    return [value / base for value, base in zip(values, bases, strict=True) if base]


def _summary(samples: Sequence[Sample], first: Sequence[Sample]) -> Summary:
    pairs = list(zip(samples, first, strict=True))
    return Summary(
        wall=median(sample.wall for sample in samples),
        cpu=median(sample.cpu for sample in samples),
        best_wall=min(sample.wall for sample in samples),
        wall_ratio=median(sample.wall / base.wall for sample, base in pairs),
        cpu_ratio=median(sample.cpu / base.cpu if base.cpu else 0 for sample, base in pairs),
    )


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: the first column to the left, the others to the right."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    for first, *others in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())


def microseconds(seconds: float) -> str:
    """Write a time for a table."""
    return f"{seconds * 1e6:,.2f} µs"
