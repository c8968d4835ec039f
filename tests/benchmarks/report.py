"""Report: the page and its plots, from `results.json` and from nothing else.

What is on the page was measured, is computed from that, or explains it (`page.md`, and the docstring of each scenario).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from string import Template
from typing import Final

from tests.benchmarks.comparing import (
    OVERVIEW,
    OVERVIEW_TITLE,
    asked_for,
    compared,
    overview,
    summary_table,
    table_by_case,
)
from tests.benchmarks.figures import Chart, Figure, Scenario
from tests.benchmarks.results import Part
from tests.benchmarks.units import scale_of, with_unit, written

_WORDS: Final = Path(__file__).with_name("page.md")
_HEADINGS: Final = ("case", "measured", "of", "median", "quartiles", "rounds", "asked for", "reached")


def render(scenarios: Mapping[str, Scenario], parts: Mapping[str, Part]) -> str:
    """Return the page."""
    sections = [
        _section(scenario, parts[name]) if name in parts else _not_run(scenario, name)
        for name, scenario in scenarios.items()
    ]
    found = {scenario.title: parts[name] for name, scenario in scenarios.items() if name in parts}
    return Template(_WORDS.read_text()).substitute(
        pictures="\n".join(_shown(parts)),
        table="\n".join(summary_table(found)),
        summary=_summary(found),
        sections="\n".join(sections),
    )


def _shown(parts: Mapping[str, Part]) -> Iterator[str]:
    """Yield each picture with what it says: all sizes first, where a cliff would be seen."""
    shown = [picture for name, part in parts.items() for picture in pictures(name, part)]
    yield from _with_words(picture for picture in shown if picture[1].is_curve)
    if overview(parts):
        yield f"![{OVERVIEW_TITLE}]({OVERVIEW})\n"
    yield from _with_words(picture for picture in shown if not picture[1].is_curve)


def _with_words(shown: Iterable[tuple[str, Chart, list[Figure]]]) -> Iterator[str]:
    for file, chart, figures in shown:
        yield f"![{chart.title}]({file})\n"
        if message := compared(figures):
            yield f"*{message}*\n"


def pictures(name: str, part: Part) -> Iterator[tuple[str, Chart, list[Figure]]]:
    """Yield the charts of a scenario that have anything to show: name of the file, chart, and its figures."""
    for chart in part.figures.charts:
        figures = [figure for figure in part.figures.figures if figure.quantity == chart.quantity]
        if figures:
            yield f"{name}-{re.sub('[^a-z0-9]+', '-', chart.quantity.lower())}.png", chart, figures


def _summary(parts: Mapping[str, Part]) -> str:
    """Say how much of what was asked for is reached, and name the rest."""
    asked = [
        (title, figure) for title, part in parts.items() for figure in part.figures.figures if figure.bound is not None
    ]
    failed = [(title, figure) for title, figure in asked if not figure.is_reached]
    lines = [f"Of {len(asked)} values that were asked for, {len(asked) - len(failed)} are reached."]
    if failed:
        lines += ["Not reached:", ""]
    lines += [
        f"- {title}, {figure.case}: {figure.quantity} of {figure.who} is "
        f"{with_unit(figure.unit, figure.spread.median)}, asked for {asked_for(figure)}"
        for title, figure in failed
    ]
    return "\n".join(lines)


def _section(scenario: Scenario, part: Part) -> str:
    run, found = part.run, part.figures
    lines = [f"## {scenario.title}", "", _about(scenario), ""]
    if found.figures:
        long = _table(_HEADINGS, map(_row, _without_repeats(found.figures)))
        lines += [*(table_by_case(found.figures) if scenario.is_wide else long), ""]
    lines += [f"- Models of ours: {scenario.served}."] * bool(scenario.served)
    lines += [f"- **Not measured.** {reason}" for reason in found.missing]
    versions = ", ".join(f"{who} {version}" for who, version in chain(run.versions.items(), found.versions.items()))
    quick = " A quick run: few rounds, and not the largest sizes." if run.is_quick else ""
    lines += [
        f"- Made on {run.date} by `{run.command}` in {run.seconds} s.{quick}",
        f"- {run.machine}; {versions}.",
        "",
    ]
    return "\n".join(lines)


def _not_run(scenario: Scenario, name: str) -> str:
    command = f"python -m tests.benchmarks --only {name}"
    return f"## {scenario.title}\n\n{_about(scenario)}\n\nNot run yet: `{command}`.\n"


def _about(scenario: Scenario) -> str:
    return (scenario.about or "").strip()


def _without_repeats(figures: Sequence[Figure]) -> Iterator[tuple[str, Figure]]:
    """Yield the figures case by case, each with its case where that is not the one of the row above."""
    cases = list(dict.fromkeys(figure.case for figure in figures))
    last = None
    for figure in sorted(figures, key=lambda figure: cases.index(figure.case)):
        yield "" if figure.case == last else figure.case, figure
        last = figure.case


def _row(line: tuple[str, Figure]) -> tuple[str, ...]:
    case, figure = line
    spread = figure.spread
    factor, _ = scale_of(figure.unit, spread.median)
    quartiles = f"{written(spread.low, factor)} - {written(spread.high, factor)}" if spread.count > 1 else ""
    value = with_unit(figure.unit, spread.median)
    if figure.bound is None:
        return case, figure.quantity, figure.who, value, quartiles, str(spread.count), "", ""
    reached = "yes" if figure.is_reached else "**no**"
    return case, figure.quantity, figure.who, value, quartiles, str(spread.count), asked_for(figure), reached


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield "| --- | --- | --- | --: | --: | --: | --: | --- |"
    for row in rows:
        yield f"| {' | '.join(row)} |"
