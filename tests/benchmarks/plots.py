"""Plots: one picture for each chart of a scenario.

A bar is a median, its whiskers the quartiles, a thin line across it what was asked for. A curve joins medians.
matplotlib comes with the extra `bench`, and nothing but this file needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks.figures import OURS, Chart, Figure
from tests.benchmarks.units import scale_of, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = ("#8a8f98", "#c9a227", "#7a5ea8", "#5b8c5a")
_OUR_COLOUR: Final = "#1f6fb2"
_BOUND_COLOUR: Final = "#c0392b"
_WIDTH_INCHES: Final = 7.5
_BAR_INCHES: Final = 0.24
_CURVES_INCHES: Final = 5.0
_DPI: Final = 90


def draw(chart: Chart, figures: Sequence[Figure], path: Path) -> None:
    """Draw a chart.

    Args:
        chart: what is shown.
        figures: those of its quantity, not empty.
        path: of the PNG.
    """
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra

    cases = list(dict.fromkeys(figure.case for figure in figures))
    height = _CURVES_INCHES if chart.is_curve else _BAR_INCHES * (len(figures) + len(cases)) + 1.4
    canvas = Canvas(figsize=(_WIDTH_INCHES, height), dpi=_DPI, layout="constrained")
    axes = canvas.subplots()
    if chart.is_curve:
        _draw_curves(axes, chart, figures, cases)
    else:
        _draw_all_bars(axes, chart, figures, cases)
    axes.set_title(chart.title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.legend(loc="outside lower center", ncols=2 if chart.is_curve else 5, fontsize=8, frameon=False)
    canvas.savefig(path, metadata={"Software": None})


def _draw_curves(axes: Axes, chart: Chart, figures: Sequence[Figure], cases: Sequence[str]) -> None:
    """Draw a curve for each `who`, with a line at 1, where both sides of a ratio are equal."""
    axes.axhline(1, color=_BOUND_COLOUR, linewidth=1)
    for number, who in enumerate(dict.fromkeys(figure.who for figure in figures)):
        medians = {figure.case: figure.spread.median for figure in figures if figure.who == who}
        places = [place for place, case in enumerate(cases) if case in medians]
        colour, style = (_OUR_COLOUR, *_COLOURS)[number % 4], ("-", "--")[number // 4 % 2]
        axes.plot(places, [medians[cases[place]] for place in places], style, color=colour, marker="o", ms=3, label=who)
    axes.set_xticks(range(len(cases)), list(cases), rotation=45, fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(chart.quantity)


def _draw_all_bars(axes: Axes, chart: Chart, figures: Sequence[Figure], cases: Sequence[str]) -> None:
    values = [figure.spread.median for figure in figures]
    factor, unit = scale_of(figures[0].unit, min(values) if chart.is_log else max(values))
    _draw_bars(axes, figures, cases, factor)
    ends = [*values, *(figure.bound.value for figure in figures if figure.bound is not None)]
    if chart.is_log:
        axes.set_xscale("log")
        axes.set_xlim(min(ends) / factor / 2, max(ends) / factor * 6)
    else:
        axes.set_xlim(0, max(ends) / factor * 1.25)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set_xlabel(f"{chart.quantity}{f', {unit}' if unit else ''}{' (logarithmic)' if chart.is_log else ''}")


def _draw_bars(axes: Axes, figures: Sequence[Figure], cases: Sequence[str], factor: float) -> None:
    """Draw one group for each case, from top to bottom."""
    colours = _colours(figures)
    position, ticks = 0, []
    for case in cases:
        group = [figure for figure in figures if figure.case == case]
        ticks.append(position + (len(group) - 1) / 2)
        for figure in group:
            _draw_bar(axes, figure, position, colours.get(figure.who), factor)
            position += 1
        position += 1
    axes.set_yticks(ticks, [case.replace("`", "") for case in cases])
    axes.margins(y=0.01)
    axes.invert_yaxis()
    for who, colour in colours.items():
        axes.barh(0, 0, color=colour, label=who)
    if any(figure.bound is not None for figure in figures):
        axes.plot([], [], color=_BOUND_COLOUR, label="asked for")


def _draw_bar(axes: Axes, figure: Figure, position: int, colour: str | None, factor: float) -> None:
    spread = figure.spread
    low, middle, high = (value / factor for value in (spread.low, spread.median, spread.high))
    whiskers = [[max(0, middle - low)], [max(0, high - middle)]]
    axes.barh(position, middle, height=0.8, color=colour, xerr=whiskers, ecolor="#333333", capsize=2)
    text = with_unit(figure.unit, spread.median)
    axes.annotate(text, (high, position), (4, 0), textcoords="offset points", va="center", fontsize=8)
    if figure.bound is not None:
        axes.plot([figure.bound.value / factor] * 2, [position - 0.5, position + 0.5], color=_BOUND_COLOUR)


def _colours(figures: Sequence[Figure]) -> dict[str, str]:
    names = list(dict.fromkeys(figure.who for figure in figures))
    others = iter(_COLOURS * len(names))
    return {name: _OUR_COLOUR if name == OURS else next(others) for name in names}
