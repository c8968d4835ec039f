"""Plots: one picture for each chart of a scenario.

A bar is a median, its whiskers the quartiles, a thin line across it what was asked for. matplotlib comes with the extra
`bench`, and nothing but this file needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks.figures import OURS, Chart, Figure
from tests.benchmarks.units import scale_of, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = ("#8a8f98", "#c9a227", "#7a5ea8", "#5b8c5a")
_OUR_COLOUR: Final = "#1f6fb2"
_WIDTH_INCHES: Final = 7.5
_BAR_INCHES: Final = 0.26
_DPI: Final = 110


def draw(chart: Chart, figures: Sequence[Figure], path: Path) -> None:
    """Draw the bars of a chart.

    Args:
        chart: what is shown.
        figures: those of its quantity, not empty.
        path: of the PNG.
    """
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra

    cases = list(dict.fromkeys(figure.case for figure in figures))
    height = _BAR_INCHES * (len(figures) + len(cases)) + 1.1
    canvas = Canvas(figsize=(_WIDTH_INCHES, height), dpi=_DPI, layout="constrained")
    axes = canvas.subplots()
    _draw_bars(axes, figures, cases)
    factor, unit = scale_of(figures[0].unit, max(figure.spread.median for figure in figures))
    if chart.is_log:
        axes.set_xscale("log")
        axes.set_xlim(min(figure.spread.low for figure in figures) / 3, max(f.spread.high for f in figures) * 4)
    else:
        axes.set_xlim(0, max(figure.spread.high for figure in figures) * 1.15)
    axes.xaxis.set_major_formatter(lambda value, _: written(value, factor))
    axes.set_xlabel(f"{chart.quantity}{f', {unit}' if unit else ''}{' (logarithmic)' if chart.is_log else ''}")
    axes.set_title(chart.title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path, metadata={"Software": None})


def _draw_bars(axes: Axes, figures: Sequence[Figure], cases: Sequence[str]) -> None:
    """Draw one group for each case, from top to bottom."""
    colours = _colours(figures)
    position, ticks = 0.0, []
    for case in cases:
        group = [figure for figure in figures if figure.case == case]
        ticks.append(position + (len(group) - 1) / 2)
        for figure in group:
            _draw_bar(axes, figure, position, colours[figure.who])
            position += 1
        position += 1
    axes.set_yticks(ticks, cases)
    axes.invert_yaxis()
    handles = [axes.barh(0, 0, color=colour, label=who) for who, colour in colours.items()]
    axes.legend(handles=handles, fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_bar(axes: Axes, figure: Figure, position: float, colour: str) -> None:
    spread = figure.spread
    whiskers = [[max(0, spread.median - spread.low)], [max(0, spread.high - spread.median)]]
    axes.barh(position, spread.median, height=0.8, color=colour, xerr=whiskers, ecolor="#333333", capsize=2)
    factor, unit = scale_of(figure.unit, spread.median)
    text = f"{written(spread.median, factor)} {unit}".rstrip()
    axes.annotate(text, (spread.high, position), (4, 0), textcoords="offset points", va="center", fontsize=8)
    if figure.bound is not None:
        axes.plot([figure.bound.value] * 2, [position - 0.5, position + 0.5], color="#c0392b", linewidth=1.5)


def _colours(figures: Sequence[Figure]) -> dict[str, str]:
    names = list(dict.fromkeys(figure.who for figure in figures))
    others = iter(_COLOURS * len(names))
    return {name: _OUR_COLOUR if name == OURS else next(others) for name in names}
