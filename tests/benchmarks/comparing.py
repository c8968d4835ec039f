"""Comparing: what figures say about ours and the others, in words, in a table, and in the picture of the front page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tests.benchmarks.figures import MIB, OURS, Figure
from tests.benchmarks.measure import Spread
from tests.benchmarks.results import Part
from tests.benchmarks.units import with_unit, written

OVERVIEW: Final = "overview.png"
OVERVIEW_TITLE: Final = "64 MiB there and back"

_TENSORS: Final = {"`identity`, 256 MiB": 256 * MIB, "`identity`, 64 MiB": 64 * MIB}
"""Cases of the server's memory, with the size of their tensor."""


def factors(figures: Sequence[Figure]) -> dict[str, list[float]]:
    """Return the values of the others in units of ours, for each case that both have."""
    ours = {figure.case: figure.spread.median for figure in figures if figure.who == OURS}
    found: dict[str, list[float]] = {}
    for figure in figures:
        if figure.who != OURS and figure.case in ours:
            found.setdefault(figure.who, []).append(figure.spread.median / ours[figure.case])
    return found


def compared(figures: Sequence[Figure]) -> str:
    """Say in a sentence how others compare with ours; nothing if there are none."""
    said = [f"{who} {_span(values)}" for who, values in factors(figures).items()]
    return f"{figures[0].quantity.capitalize()}, in units of ours: {', '.join(said)}." if said else ""


def summary_table(parts: Mapping[str, Part]) -> Iterator[str]:
    """Yield a table with one line for each case in which ours stands beside others."""
    yield "| case | ours | others |"
    yield "| --- | --- | --- |"
    for title, part in parts.items():
        for chart in part.figures.charts:
            figures = [figure for figure in part.figures.figures if figure.quantity == chart.quantity]
            for mine in (figure for figure in figures if figure.who == OURS):
                others = [figure for figure in figures if figure.case == mine.case and figure.who != OURS]
                if others:
                    said = ", ".join(f"{other.who} {_value(other)} ({_times(other, mine)})" for other in others)
                    yield f"| {title}, {mine.case}: {mine.quantity} | {_value(mine)} | {said} |"


def table_by_case(figures: Iterable[Figure]) -> Iterator[str]:
    """Yield a table with one line for each case and quantity, and one column for each whose figures they are."""
    lines: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures:
        lines.setdefault((figure.case, figure.quantity), {})[figure.who] = figure
    columns = list(dict.fromkeys(who for cells in lines.values() for who in cells))
    yield f"| case | measured | {' | '.join(columns)} | asked for | reached |"
    yield f"| --- | --- |{' --: |' * len(columns)} --: | --- |"
    for names, cells in lines.items():
        values = [_value(cells[who]) if who in cells else "" for who in columns]
        asked = [figure for figure in cells.values() if figure.bound]
        reached = ("yes" if all(figure.is_reached for figure in asked) else "**no**") if asked else ""
        yield f"| {' | '.join([*names, *values, ', '.join(map(asked_for, asked)), reached])} |"


def asked_for(figure: Figure) -> str:
    """Write a figure's bound; nothing if it has none."""
    return "" if figure.bound is None else f"{figure.bound.relation} {with_unit(figure.unit, figure.bound.value)}"


def overview(parts: Mapping[str, Part]) -> list[tuple[str, list[Figure]]]:
    """Return what the picture of the front page shows, as groups of bars; empty if it has not all been measured."""
    if not {"client", "echo", "memory"} <= set(parts):
        return []
    client, echo, memory = (parts[name].figures.figures for name in ("client", "echo", "memory"))
    return [
        ("Client of Triton: time", [figure for figure in client if figure.quantity == "time"]),
        ("Client of Triton: peak memory", [figure for figure in client if figure.quantity == "peak memory"]),
        ("Server: time", [figure for figure in echo if figure.quantity == "time" and figure.case == "64 MiB"]),
        (
            "Server: peak memory, in sizes of the tensor",
            [_in_tensors(figure) for figure in memory if figure.case in _TENSORS],
        ),
    ]


def _in_tensors(figure: Figure) -> Figure:
    size = _TENSORS[figure.case]
    spread = figure.spread
    scaled = Spread(low=spread.low / size, median=spread.median / size, high=spread.high / size, count=spread.count)
    return replace(figure, unit="ratio", spread=scaled, bound=None)


def _value(figure: Figure) -> str:
    return with_unit(figure.unit, figure.spread.median)


def _times(other: Figure, mine: Figure) -> str:
    return f"{written(other.spread.median / mine.spread.median, 1)}x"


def _span(values: Sequence[float]) -> str:
    ends = [written(value, 1) for value in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
